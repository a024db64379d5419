//! What a factory or a half that stands around another one passes on unchanged, written once.

/// The methods of a `Factory` around `self.own` that are the same for all: what receivers do and send is the controller's own.
macro_rules! own_receivers {
    () => {
        fn receiver(&self, setup: &steadycast_control::Setup) -> Box<dyn steadycast_control::ReceiverHalf> {
            self.own.receiver(setup)
        }
        fn extension(&self) -> u8 {
            self.own.extension()
        }
        fn app(&self) -> [u8; 4] {
            self.own.app()
        }
        fn feedback(&self) -> steadycast_control::registry::FeedbackTiming {
            self.own.feedback()
        }
        fn repeats(&self) -> bool {
            self.own.repeats()
        }
    };
}

/// The methods of a `SenderHalf` around `self.half` that each of them passes on, and besides those that are named.
macro_rules! pass_on {
    ($($method:ident)*) => {
        fn on_queue(&mut self, queue: &steadycast_control::MediaQueue) {
            self.half.on_queue(queue);
        }
        fn allowance(&self) -> Option<steadycast_control::Allowance> {
            self.half.allowance()
        }
        fn due(&self) -> steadycast_control::Due {
            self.half.due()
        }
        fn checks(&self) -> &[steadycast_control::Check] {
            self.half.checks()
        }
        $($crate::around::pass_on!(@ $method);)*
    };
    (@ on_extra_sent) => {
        fn on_extra_sent(&mut self, sent: &steadycast_control::ExtraSent) {
            self.half.on_extra_sent(sent);
        }
    };
    (@ on_timer) => {
        fn on_timer(&mut self, now: steadycast_units::Time) {
            self.half.on_timer(now);
        }
    };
    (@ wake) => {
        fn wake(&self) -> Option<steadycast_control::Wake> {
            self.half.wake()
        }
    };
    (@ decision) => {
        fn decision(&self) -> steadycast_control::Decision {
            self.half.decision()
        }
    };
    (@ probe) => {
        fn probe(&self) -> Option<steadycast_control::Probe> {
            self.half.probe()
        }
    };
    (@ notice) => {
        fn notice(&mut self, packet: &steadycast_control::Departing) -> steadycast_control::Notice {
            self.half.notice(packet)
        }
    };
    (@ announce) => {
        fn announce(&mut self, now: steadycast_units::Time) -> Option<steadycast_control::Body> {
            self.half.announce(now)
        }
    };
}

pub(crate) use {own_receivers, pass_on};
