//! The controller's halves are created with the features that the product offers.
#![allow(clippy::unwrap_used, reason = "a test that stops is a test that failed")]

use std::sync::{Arc, Mutex};
use steadycast_control::registry::{Chosen, Factory, Setup, Terms};
use steadycast_control::{Mode, ReceiverHalf, SenderHalf};
use steadycast_remote::{Bounds, Need, Rate, Remote};

/// Builds the halves of a controller of the registry, and records whether their setup has probes.
struct RecordsSetup {
    chosen: Chosen,
    probes: Mutex<Vec<bool>>,
}

impl Factory for RecordsSetup {
    fn sender(&self, setup: &Setup) -> Box<dyn SenderHalf> {
        self.probes.lock().unwrap().push(setup.probes);
        self.chosen.sender(setup)
    }
    fn receiver(&self, setup: &Setup) -> Box<dyn ReceiverHalf> {
        self.chosen.receiver(setup)
    }
    fn terms(&self) -> Terms {
        self.chosen.terms()
    }
}

#[test]
fn a_half_is_built_for_a_session_with_probes_exactly_if_the_product_offers_them() {
    // The receiver half of `tfrc` is replayed at the sender; `steady` reads per-packet feedback itself.
    for controller in ["steady", "tfrc"] {
        for offers in [vec![], vec![Need::Probes]] {
            let chosen = Chosen::new(controller, Mode::Repaired, &[]).unwrap();
            let records = Arc::new(RecordsSetup { chosen, probes: Mutex::default() });
            let mut bounds = Bounds::new(Rate::kbps(100), Rate::mbps(4));
            bounds.offers = offers;
            let given: Arc<dyn Factory> = records.clone();
            Remote::around(given, &bounds).unwrap();
            let has_probes = !bounds.offers.is_empty();
            assert_eq!(*records.probes.lock().unwrap(), [has_probes], "{controller}");
        }
    }
}
