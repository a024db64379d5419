//! A direction of a link, and its reverse.

use steadycast_scenario::{DirIx, LinkIx};

#[test]
fn directions_of_a_link_are_each_others_reverse() {
    let link = LinkIx(7);
    assert_eq!(DirIx::forward(link).reverse(), DirIx::back(link));
    assert_eq!(DirIx::back(link).reverse(), DirIx::forward(link));
    assert_eq!((DirIx::forward(link).link(), DirIx::back(link).link()), (link, link));
    assert!(DirIx::back(link).is_back() && !DirIx::forward(link).is_back());
}
