use proptest::prelude::*;
use serde_json::Value;
use std::fs;
use steadycast_control::FeedbackFormat;
use steadycast_external::{Fault, FaultSlot, Program, Timeouts};
use steadycast_media::{RungContext, RungNeed, SwitchingFactory};
use steadycast_units::{Bytes, Rate, Span};

/// Starts a shell script as the program of a switching rule.
fn start(script: &str, slot: &FaultSlot) -> Program {
    let words = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    Program::start(Timeouts::default(), "video", "exec:sh", words, FeedbackFormat::Own, slot.clone())
        .unwrap_or_else(|fault| panic!("{fault:?}"))
}

fn context(needs: &[RungNeed], rung: Option<usize>) -> RungContext<'_> {
    let (lasts, rate, backlog) = (Span::millis(480), Rate::kbps(900), Bytes::new(70));
    RungContext { at: Span::millis(1_920), rung, needs, lasts, rate, backlog }
}

#[test]
fn after_a_fault_the_stream_keeps_its_rung_and_the_program_is_asked_no_more() {
    let slot = FaultSlot::default();
    let needs = [RungNeed { recent: Rate::kbps(500), worst: Rate::kbps(800) }; 4];
    let answers =
        "read -r _; echo '{\"v\":1}'; read -r _; echo '{\"rung\":2}'; read -r _; echo '{\"rung\":4}'; read -r _";
    let program = start(answers, &slot);
    let mut rule = program.rule();
    assert_eq!((rule.choose(&context(&needs, None)), slot.is_set()), (2, false));
    assert_eq!((rule.choose(&context(&needs, Some(2))), slot.is_set()), (2, true));
    assert_eq!(rule.choose(&context(&needs, Some(1))), 1);
    let Some(Fault::Wrong { place, problem, remedy }) = slot.take() else { panic!("no fault") };
    assert_eq!(place, "flow.video: exec:sh");
    assert_eq!(
        problem,
        "at 1.920 s of the stream it answered \"rungs\" with {\"rung\":4}: its \"rung\" is 4; the rungs are 0 to 3"
    );
    assert!(remedy.contains("0 is the finest"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn a_message_has_the_values_of_the_context_by_their_keys(
        rates in prop::collection::vec((any::<u64>(), any::<u64>()), 1..9),
        at in any::<u64>(),
        rate in any::<u64>(),
        backlog in any::<u64>(),
        chosen in prop::option::of(0usize..9),
    ) {
        let needs: Vec<RungNeed> =
            rates.iter().map(|(a, b)| RungNeed { recent: Rate::bps(*a), worst: Rate::bps(*b) }).collect();
        let rung = chosen.filter(|rung| *rung < needs.len());
        let (slot, folder) = (FaultSlot::default(), std::env::temp_dir());
        let file = folder.join(format!("steadycast-switching-{}.json", std::process::id()));
        let script = format!(
            "read -r _; echo '{{\"v\":1}}'; read -r line; printf '%s' \"$line\" > {}; echo '{{\"rung\":0}}'; read -r _",
            file.display()
        );
        let program = start(&script, &slot);
        let context = RungContext {
            at: Span::nanos(at),
            rung,
            needs: &needs,
            lasts: Span::millis(480),
            rate: Rate::bps(rate),
            backlog: Bytes::new(backlog),
        };
        prop_assert_eq!((program.rule().choose(&context), slot.take()), (0, None));
        let message: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        fs::remove_file(&file).unwrap();
        let expected = serde_json::json!({
            "m": "rungs", "t": at, "rung": rung, "rate": rate, "backlog": backlog, "group": 480_000_000,
            "recent": rates.iter().map(|(recent, _)| *recent).collect::<Vec<_>>(),
            "worst": rates.iter().map(|(_, worst)| *worst).collect::<Vec<_>>(),
        });
        prop_assert_eq!(message, expected);
    }
}
