#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| steadycast_fuzz::targets::web_answer(data));
