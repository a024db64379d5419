use crate::ParseError;

/// Reads received bytes and checks their bounds.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }
    pub(crate) fn take(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], ParseError> {
        let Some((head, rest)) = self.rest.split_at_checked(n) else {
            return Err(ParseError::Short { what, need: n, got: self.rest.len() });
        };
        self.rest = rest;
        Ok(head)
    }
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ParseError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(ParseError::Short { what, need: N, got: self.rest.len() });
        };
        self.rest = rest;
        Ok(*head)
    }
    pub(crate) fn u8(&mut self, what: &'static str) -> Result<u8, ParseError> {
        self.array::<1>(what).map(|[byte]| byte)
    }
    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, ParseError> {
        self.array(what).map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, ParseError> {
        self.array(what).map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, ParseError> {
        self.array(what).map(u64::from_be_bytes)
    }
}

/// Rounds a number of bytes up to whole 32-bit words.
pub(crate) const fn to_words(n: usize) -> usize {
    n.div_ceil(4) * 4
}
