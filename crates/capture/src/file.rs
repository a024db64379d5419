//! Writes a pcapng file.

use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::opt_common::CommonOption;
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::time::Duration;
use steadycast_units::Time;

/// A pcapng file that is being written. It contains raw IPv4 packets of named interfaces. Times are in nanoseconds.
pub struct CaptureFile {
    writer: PcapNgWriter<BufWriter<Box<dyn Write + Send>>>,
}

impl CaptureFile {
    /// Creates the writer and writes the file's header to `out`. `interfaces` has the name of each interface. An
    /// interface is later specified by its index.
    ///
    /// # Errors
    /// Returns the stream's error.
    pub fn new(out: Box<dyn Write + Send>, program: &str, interfaces: &[String]) -> io::Result<Self> {
        let options = vec![SectionHeaderOption::UserApplication(Cow::Owned(program.to_owned()))];
        let head = SectionHeaderBlock { options, ..SectionHeaderBlock::default() };
        let mut writer = PcapNgWriter::with_section_header(BufWriter::new(out), head).map_err(stream_error)?;
        for name in interfaces {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
            ];
            // Use the largest snapshot length that Wireshark accepts for raw IP.
            let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 262_144, options };
            writer.write_block(&interface.into_block()).map_err(stream_error)?;
        }
        Ok(Self { writer })
    }

    /// Appends a packet. `at` is the time since 1970-01-01 00:00:00 UTC.
    ///
    /// # Errors
    /// Returns the stream's error. The capture is then incomplete, and no further packet can be added.
    pub fn packet(&mut self, interface: u32, at: Time, datagram: &[u8], comment: Option<&str>) -> io::Result<()> {
        let comment = comment.map(|text| EnhancedPacketOption::Common(CommonOption::Comment(Cow::Borrowed(text))));
        let block = EnhancedPacketBlock {
            interface_id: interface,
            timestamp: Duration::from_nanos(at.as_nanos()),
            original_len: datagram.len() as u32,
            data: Cow::Borrowed(datagram),
            options: comment.into_iter().collect(),
        };
        self.writer.write_block(&block.into_block()).map_err(stream_error).map(|_| ())
    }

    /// Flushes the stream.
    ///
    /// # Errors
    /// Returns the stream's error.
    pub fn finish(mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }
}

/// Returns the I/O error of the stream. pcap-file wraps this error, so it is the source of `error`.
fn stream_error(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        Some(source) => io::Error::new(source.kind(), source.to_string()),
        None => io::Error::other(error),
    }
}
