// Packets at constant rates and TCPs over one queue of ns-3: python -m validation.peers ns-3.
//
// The bottleneck has 10 Mb/s and 20 ms; the links before and behind it have 1 Gb/s. All packets have 1000 bytes on the
// wire except those of `thin`, which have 200; two bytes of them are ns-3's framing. Waits are those in the queue
// discipline, of packets that leave it after `from`; drops are counted from the start.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <iostream>
#include <sstream>

using namespace ns3;

namespace {

const uint32_t PACKET = 1000, THIN = 200, UDP = 30, TCP = 54;

double percentile(std::vector<double>& ms, double share)
{
    std::sort(ms.begin(), ms.end());
    return ms.empty() ? 0 : ms[std::min(ms.size() - 1, size_t(share * ms.size()))];
}

} // namespace

int main(int argc, char** argv)
{
    std::string queue = "ns3::FifoQueueDisc[MaxSize=50p]", tcps;
    double cbr = 0, thin = 0, duration = 60, from = 20, spread = 1;
    uint32_t seed = 1;
    CommandLine command;
    command.AddValue("queue", "of the bottleneck, as ns-3 writes an object's attributes", queue);
    command.AddValue("tcps", "the types of socket's congestion controls, with commas between", tcps);
    command.AddValue("cbr", "rate in bit/s", cbr);
    command.AddValue("thin", "rate in bit/s", thin);
    command.AddValue("duration", "s", duration);
    command.AddValue("from", "s", from);
    command.AddValue("spread", "TCPs begin within the first s", spread);
    command.AddValue("seed", "from 1", seed);
    command.Parse(argc, argv);
    RngSeedManager::SetRun(seed);
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(PACKET - TCP));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 22));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 22));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));

    NodeContainer left(1), right(1);
    InternetStackHelper internet;
    internet.Install(NodeContainer(left, right));
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    auto line = [&](Ptr<Node> a, Ptr<Node> b, const char* rate, const char* delay, const char* holds) {
        PointToPointHelper made;
        made.SetDeviceAttribute("DataRate", StringValue(rate));
        made.SetChannelAttribute("Delay", StringValue(delay));
        made.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue(holds));
        return made.Install(a, b);
    };
    auto numbered = [&](NetDeviceContainer devices) {
        auto found = addresses.Assign(devices);
        addresses.NewNetwork();
        return found;
    };

    auto bottleneck = line(left.Get(0), right.Get(0), "10Mbps", "20ms", "1p");
    ObjectFactory factory;
    std::istringstream(queue) >> factory;
    auto discipline = factory.Create<QueueDisc>();
    left.Get(0)->GetObject<TrafficControlLayer>()->SetRootQueueDiscOnDevice(bottleneck.Get(0), discipline);
    std::vector<double> waits, thinWaits;
    auto left_it = [&](Ptr<const QueueDiscItem> item) {
        auto& of = item->GetSize() <= THIN ? thinWaits : waits;
        if (Simulator::Now().GetSeconds() >= from)
            of.push_back((Simulator::Now() - item->GetTimeStamp()).ToDouble(Time::MS));
    };
    discipline->TraceConnectWithoutContext("Dequeue", Callback<void, Ptr<const QueueDiscItem>>(left_it));
    numbered(bottleneck);

    std::vector<Ptr<PacketSink>> sinks;
    auto begins = CreateObject<UniformRandomVariable>();
    TrafficControlHelper none;
    Ipv4Address reached;
    auto host = [&](Ptr<Node> beside) {
        NodeContainer made(1);
        internet.Install(made);
        auto devices = line(made.Get(0), beside, "1Gbps", "0ms", "100000p");
        reached = numbered(devices).GetAddress(0);
        none.Uninstall(devices);
        return made.Get(0);
    };
    auto receiver = host(right.Get(0));
    auto address = reached;
    uint16_t port = 1000;
    auto constant = [&](double bps, uint32_t packet) {
        if (bps <= 0)
            return;
        UdpClientHelper client(address, port++);
        client.SetAttribute("Interval", TimeValue(Seconds(8.0 * packet / bps)));
        client.SetAttribute("PacketSize", UintegerValue(packet - UDP));
        client.SetAttribute("MaxPackets", UintegerValue(1u << 31));
        client.Install(host(left.Get(0)));
    };
    constant(cbr, PACKET);
    constant(thin, THIN);
    std::istringstream words(tcps);
    for (std::string type; std::getline(words, type, ',');)
    {
        auto sender = host(left.Get(0));
        sender->GetObject<TcpL4Protocol>()->SetAttribute("SocketType", TypeIdValue(TypeId::LookupByName(type)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(address, port));
        bulk.SetAttribute("MaxBytes", UintegerValue(0));
        bulk.SetAttribute("SendSize", UintegerValue(PACKET - TCP));
        bulk.Install(sender).Start(Seconds(begins->GetValue(0, spread)));
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port++));
        sinks.push_back(sink.Install(receiver).Get(0)->GetObject<PacketSink>());
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<uint64_t> before(sinks.size());
    Simulator::Schedule(Seconds(from), [&] {
        for (size_t n = 0; n < sinks.size(); ++n)
            before[n] = sinks[n]->GetTotalRx();
    });
    Simulator::Stop(Seconds(duration));
    Simulator::Run();
    const auto& seen = discipline->GetStats();
    std::cout << "{\"p50\": " << percentile(waits, 0.5) << ", \"p95\": " << percentile(waits, 0.95)
              << ", \"thin\": " << percentile(thinWaits, 0.95) << ", \"drops\": " << seen.nTotalDroppedPackets
              << ", \"offered\": " << seen.nTotalReceivedPackets << ", \"mbps\": [";
    for (size_t n = 0; n < sinks.size(); ++n)
        std::cout << (n ? ", " : "")
                  << 8e-6 * (sinks[n]->GetTotalRx() - before[n]) / (duration - from) * PACKET / (PACKET - TCP);
    std::cout << "]}\n";
    Simulator::Destroy();
}
