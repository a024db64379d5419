//! Lists all controllers and creates one of them: `cargo run -p steadycast-control --example registry`.

use steadycast_control::Mode;
use steadycast_control::registry::{ALL, Chosen, Given, ParamError};

fn main() -> Result<(), ParamError> {
    for controller in ALL {
        println!("{:14} {}", controller.name, controller.about);
    }
    let mine = Chosen::new("fixed", Mode::Repaired, &[("rate".into(), Given::Text("1500kbps".into()))])?;
    for (name, value) in mine.values.iter() {
        println!("fixed.{name} = {value}");
    }
    // The error message also suggests a solution.
    let error = Chosen::new("tfcr", Mode::Repaired, &[]).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), Some("tfcr: no such controller; did you mean \"tfrc\"?"));
    Ok(())
}
