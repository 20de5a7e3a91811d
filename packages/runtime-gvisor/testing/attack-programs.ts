/** Programs that the security tests run inside a sandbox. */

/** A connection that the program in the sandbox tries. */
export interface Target {
  readonly host: string;
  readonly port: number;
  readonly send?: string;
  /** Uses TLS with this server name. */
  readonly tls?: string;
}

export interface ConnectionResult {
  readonly received: string;
  /** The code of the error, or how the connection ended otherwise. */
  readonly ended: string;
}

/** Connects to every target at the same time and prints the results. */
export const CONNECTIONS = `
const net = require('node:net'), tls = require('node:tls'), fs = require('node:fs');
const targets = JSON.parse(fs.readFileSync(process.argv[2]));
const talk = (target) => new Promise((resolve) => {
  let received = '';
  const where = { host: target.host, port: target.port };
  const done = (ended) => { socket.destroy(); resolve({ received, ended }); };
  const socket = target.tls === undefined ? net.connect(where)
    : tls.connect({ ...where, servername: target.tls, rejectUnauthorized: false });
  socket.on('connect', () => target.tls === undefined && socket.write(target.send ?? 'GET / HTTP/1.0\\r\\n\\r\\n'));
  socket.on('data', (bytes) => { received += bytes; });
  socket.on('error', (error) => done(error.code));
  socket.on('end', () => done('end'));
  setTimeout(done, 8000, 'nothing').unref();
});
Promise.all(targets.map(talk)).then((talks) => console.log(JSON.stringify(talks)));
`;

/** Sends a datagram to each target and prints which were answered. */
export const DATAGRAMS = `
const { createSocket } = require('node:dgram'), fs = require('node:fs');
const targets = JSON.parse(fs.readFileSync(process.argv[2]));
const send = ({ host, port }) => new Promise((resolve) => {
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', () => resolve('answered')).on('error', (error) => resolve(error.code));
  socket.connect(port, host, (error) => error ? resolve(error.code) : socket.send('x', () => {}));
  setTimeout(resolve, 1500, 'nothing');
});
Promise.all(targets.map(send)).then((all) => { console.log(JSON.stringify(all)); process.exit(); });
`;

/**
 * Forges IP packets and Ethernet frames with many sender addresses: datagrams to a UDP port of the host, and the first
 * packet of a TCP connection to its API.
 */
export const FORGED_PACKETS = `
use Socket;
my ($target, $udp, $tcp, $router, @senders) = @ARGV;
sub sum { my $s = 0; $s += $_ for unpack 'n*', $_[0] . (length($_[0]) % 2 ? "\\0" : ''); $s = ($s >> 16) + ($s & 0xffff) while $s >> 16; ~$s & 0xffff }
sub packet { my ($from, $protocol, $body) = @_;
  my $head = sub { pack 'CCnnnCCna4a4', 0x45, 0, 20 + length $body, 7, 0, 64, $protocol, $_[0], inet_aton($from), inet_aton($target) };
  $head->(sum($head->(0))) . $body }
sub tcp { my ($from) = @_; my $b = sub { pack 'nnNNCCnnn', 4444, $tcp, 1, 0, 0x50, 2, 65535, $_[0], 0 };
  $b->(sum(inet_aton($from) . inet_aton($target) . pack('CCn', 0, 6, 20) . $b->(0))) }
my @packets = map { (packet($_, 17, pack('nnnn', 4444, $udp, 9, 0) . 'x'), packet($_, 6, tcp($_))) } @senders;
if (socket(my $s, AF_INET, SOCK_RAW, 255)) {
  print "raw socket: sent ", scalar(grep { defined send($s, $_, 0, pack_sockaddr_in(0, inet_aton($target))) } @packets), "\\n";
} else { print "raw socket: $!\\n" }
if (socket(my $s, 17, SOCK_RAW, 0x0300)) {
  my ($index, $own) = \`ip -o link show eth0\` =~ /^(\\d+).*link\\/ether (\\S+)/s;
  my $mac = sub { pack 'C6', map hex, split /:/, $_[0] };
  my $to = pack 'SnlSCCa8', 17, 0x0800, $index, 0, 0, 6, $mac->($router) . "\\0\\0";
  my $frame = sub { $mac->($router) . $mac->($own) . pack('n', 0x0800) . $_[0] };
  print "frames: sent ", scalar(grep { defined send($s, $frame->($_), 0, $to) } @packets), "\\n";
} else { print "frames: $!\\n" }
`;

/** Tries to trace and read other processes. The numbers are those of the system calls. */
export const PROCESS_ATTACKS = `
for (@ARGV) { my $pid = $_ + 0; my %tried;
  my $r = syscall(101, 16, $pid, 0, 0); $tried{attach} = $r == -1 ? "$!" : 'done';
  $r = syscall(101, 0x4206, $pid, 0, 0); $tried{seize} = $r == -1 ? "$!" : 'done';
  my $buffer = "\\0" x 16; my @at = map { pack 'QQ', $_, 16 } unpack('Q', pack 'P', $buffer), 0x400000;
  $r = syscall(310, $pid, $at[0], 1, $at[1], 1, 0); $tried{read} = $r == -1 ? "$!" : 'done';
  $tried{memory} = open(my $h, '<', "/proc/$pid/mem") ? 'done' : "$!";
  $tried{root} = opendir(my $d, "/proc/$pid/root/") ? 'done' : "$!";
  print map { "$_: $tried{$_}\\n" } sort keys %tried; }
`;

/** Unmounts everything, which only a running program survives, and puts links in place of the mount points. */
export const LINKS_FOR_MOUNTS = `
my $to = shift; open M, '/proc/mounts'; my @mounts = grep { $_ ne '/' } map { (split)[1] } <M>;
syscall(166, $_, 2) for reverse sort @mounts;
for (qw(/proc /sys /dev /.torpor /usr)) { rmdir $_; symlink "$to$_", $_; print "$_ -> ", readlink, "\\n" }
`;
