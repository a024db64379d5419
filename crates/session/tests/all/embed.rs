//! The example of docs/embedding-reference.md.
#![allow(dead_code, reason = "the example's own main is not called here")]

#[path = "../../examples/embed.rs"]
mod example;

#[test]
fn the_example_for_embedding_delivers_what_it_sends_and_gets_reports() {
    let (sent, received, reports) = example::run().expect("loopback has sockets");
    // A full socket buffer or the end of the second may keep packets from arriving; a start without feedback sends few.
    assert!((10..=1000).contains(&sent), "{sent} sent");
    assert!((10..=u64::from(sent)).contains(&received), "{received} of {sent} received");
    assert!((2..=received * 2).contains(&reports), "{reports} reports");
}
