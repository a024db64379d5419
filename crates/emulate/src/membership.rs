//! Who has joined which group, as the hosts' kernels say by IGMP (RFC 3376, RFC 2236).

use std::net::Ipv4Addr;

const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// Calls `change` for each group that a message joins (`true`) or leaves. What is cut or unknown says nothing.
pub(crate) fn changes(igmp: &[u8], mut change: impl FnMut(Ipv4Addr, bool)) {
    let group = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(igmp.get(at..at + 4)?).ok()?));
    match igmp.first() {
        Some(&(REPORT_V1 | REPORT_V2)) => group(4).into_iter().for_each(|g| change(g, true)),
        Some(&LEAVE) => group(4).into_iter().for_each(|g| change(g, false)),
        Some(&REPORT_V3) => {
            let count = igmp.get(6..8).map_or(0, |n| u16::from_be_bytes([n[0], n[1]]));
            let mut at = 8;
            for _ in 0..count {
                let (Some(head), Some(group)) = (igmp.get(at..at + 4), group(at + 4)) else { return };
                let sources = u16::from_be_bytes([head[2], head[3]]);
                match (head[0], sources) {
                    // Is, or becomes, everybody but some; or some. Which sources is not told apart.
                    (2 | 4, _) | (1 | 3 | 5, 1..) => change(group, true),
                    (1 | 3, 0) => change(group, false),
                    // Some sources less: whether any is left is said by a later report.
                    _ => {}
                }
                at += 8 + 4 * usize::from(sources) + 4 * usize::from(head[1]);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(igmp: &[u8]) -> Vec<(Ipv4Addr, bool)> {
        let mut all = Vec::new();
        changes(igmp, |group, join| all.push((group, join)));
        all
    }

    #[test]
    fn reports_of_all_versions_join_and_leave() {
        let group = Ipv4Addr::new(239, 0, 0, 1);
        assert_eq!(told(&[0x16, 0, 0, 0, 239, 0, 0, 1]), [(group, true)]);
        assert_eq!(told(&[0x17, 0, 0, 0, 239, 0, 0, 1]), [(group, false)]);
        let v3 = |kind, sources: &[u8]| {
            let mut bytes = vec![0x22, 0, 0, 0, 0, 0, 0, 2];
            bytes.extend([kind, 0, 0, sources.len() as u8 / 4, 239, 0, 0, 1]);
            bytes.extend(sources);
            bytes.extend([4, 0, 0, 0, 239, 0, 0, 2]);
            told(&bytes)
        };
        let other = (Ipv4Addr::new(239, 0, 0, 2), true);
        assert_eq!(v3(4, &[]), [(group, true), other]);
        assert_eq!(v3(3, &[]), [(group, false), other]);
        assert_eq!(v3(5, &[10, 0, 0, 1]), [(group, true), other]);
        assert_eq!(v3(6, &[10, 0, 0, 1]), [other]);
    }

    #[test]
    fn a_cut_report_says_what_is_whole_in_it() {
        let whole = [0x22, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 0, 239, 0, 0, 1, 4, 0, 0, 0, 239, 0, 0, 2];
        for len in 0..whole.len() {
            assert_eq!(told(&whole[..len]).len(), usize::from(len >= 16), "{len} bytes");
        }
        assert_eq!(told(&whole).len(), 2);
    }
}
