/**
 * States of programs that a pause with memory must keep, each as a small Python program: `before` creates the state, `after`
 * fails when the state did not survive. docs/runtimes/gvisor.md lists the states that each runsc keeps.
 */

export interface ProgramState {
  readonly name: string;
  readonly before: string;
  readonly after: string;
  /** Whether a runsc of 2024 can capture and restore the state. Recent ones can do all of them. */
  readonly onOld: boolean;
}

export const PROGRAM_STATES: readonly ProgramState[] = [
  {
    name: 'an open, deleted file',
    before: `f = tempfile.TemporaryFile(); f.write(b'kept'); f.flush()`,
    after: `f.seek(0); assert f.read() == b'kept'`,
    onOld: false,
  },
  {
    name: 'a log that was rotated and deleted while it is written to',
    before: `f = open('log', 'ab', 0); f.write(b'a'); os.rename('log', 'log.1'); os.unlink('log.1')`,
    after: `f.write(b'b'); assert os.fstat(f.fileno()).st_size == 2`,
    onOld: false,
  },
  {
    name: 'an open file that was replaced by rename',
    before: `open('x', 'w').write('old'); f = open('x'); open('y', 'w').write('new'); os.rename('y', 'x')`,
    after: `assert f.read() == 'old'; assert open('x').read() == 'new'`,
    onOld: false,
  },
  {
    name: 'a running program whose file was replaced',
    before: `shutil.copy('/usr/bin/sleep', 'p'); p = subprocess.Popen(['./p', '1000']); wait_for(lambda: os.readlink(f'/proc/{p.pid}/exe').endswith('/p')); shutil.copy('/usr/bin/sleep', 'q'); os.rename('q', 'p')`,
    after: `assert p.poll() is None; p.kill(); assert p.wait() == -9`,
    onOld: false,
  },
  {
    name: 'a deleted working directory',
    before: `os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')`,
    after: `assert not os.path.exists('../gone'); os.chdir('/tmp')`,
    onOld: false,
  },
  {
    name: 'a shared mapping of a deleted file',
    before: `f = open('m', 'w+b'); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[:4] = b'kept'; os.unlink('m')`,
    after: `assert m[:4] == b'kept'; m[4096] = 7; assert m[4096] == 7`,
    onOld: false,
  },
  {
    name: 'a listener with a full backlog',
    before: `l = socket.create_server(('127.0.0.1', 0), backlog=0); cs = [socket.socket() for _ in range(5)]; [c.setblocking(False) for c in cs]; [c.connect_ex(l.getsockname()) for c in cs]`,
    after: `l.settimeout(5); a, _ = l.accept(); a.close()`,
    onOld: false,
  },
  {
    name: 'a private mapping',
    before: `m = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[5] = 42`,
    after: `assert m[5] == 42`,
    onOld: true,
  },
  {
    name: 'a mapping that two processes share',
    before: `m = mmap.mmap(-1, 4096); r, w = os.pipe(); pid = fork(lambda: (os.read(r, 1), m.__setitem__(0, 9)))`,
    after: `os.write(w, b'x'); os.waitpid(pid, 0); assert m[0] == 9`,
    onOld: true,
  },
  {
    name: 'a shared mapping of a file',
    before: `f = open('s', 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[0] = 1`,
    after: `m[1] = 2; m.flush(); assert open('s', 'rb').read(2) == bytes([1, 2])`,
    onOld: true,
  },
  {
    name: 'a pipe with data in it',
    before: `r, w = os.pipe(); os.write(w, b'kept')`,
    after: `assert os.read(r, 9) == b'kept'`,
    onOld: true,
  },
  {
    name: 'a writer that is blocked by a full pipe',
    // A blocked write may return early with the number of bytes written so far, as after a signal.
    before: `r, w = os.pipe(); pid = fork(lambda: open(w, 'wb').write(b'x' * 200000)); wait_for(lambda: state(pid) == 'S')`,
    after: `n = 0
while n < 200000: n += len(os.read(r, 65536))
assert os.waitpid(pid, 0)[1] == 0`,
    onOld: true,
  },
  {
    name: 'a named pipe',
    before: `os.mkfifo('fifo'); f = os.open('fifo', os.O_RDWR); os.write(f, b'kept')`,
    after: `assert os.read(f, 9) == b'kept'`,
    onOld: true,
  },
  {
    name: 'a socket pair with data in it',
    before: `a, b = socket.socketpair(); a.send(b'kept')`,
    after: `assert b.recv(9) == b'kept'; b.send(b'back'); assert a.recv(9) == b'back'`,
    onOld: true,
  },
  {
    name: 'a listening Unix socket with a connection',
    before: `l = socket.socket(socket.AF_UNIX); l.bind('sock'); l.listen(); c = socket.socket(socket.AF_UNIX); c.connect('sock'); a, _ = l.accept(); c.send(b'kept')`,
    after: `assert a.recv(9) == b'kept'`,
    onOld: true,
  },
  {
    name: 'a TCP connection inside the sandbox, with data in it',
    before: `l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname()); a, _ = l.accept(); c.send(b'kept')`,
    after: `assert a.recv(9) == b'kept'; a.send(b'back'); assert c.recv(9) == b'back'`,
    onOld: true,
  },
  {
    name: 'a UDP socket with a datagram in it',
    before: `u = socket.socket(type=socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0)); u.sendto(b'kept', u.getsockname())`,
    after: `u.settimeout(5); assert u.recv(9) == b'kept'`,
    onOld: true,
  },
  {
    name: 'a timer',
    before: `fired = []; signal.signal(signal.SIGALRM, lambda *_: fired.append(1)); signal.setitimer(signal.ITIMER_REAL, 1, 0.1)`,
    after: `wait_for(lambda: len(fired) >= 2)`,
    onOld: true,
  },
  {
    name: 'a thread that sleeps',
    before: `slept = []; threading.Thread(target=lambda: (time.sleep(2), slept.append(1)), daemon=True).start()`,
    after: `wait_for(lambda: slept)`,
    onOld: true,
  },
  {
    name: 'threads that wait for a condition',
    before: `c = threading.Condition(); woken = []
def waiter():
  with c: c.wait(); woken.append(1)
for _ in range(4): threading.Thread(target=waiter, daemon=True).start()
wait_for(lambda: threading.active_count() == 5)`,
    after: `def wake():
  with c: c.notify_all()
  return len(woken) == 4
wait_for(wake)`,
    onOld: true,
  },
  {
    name: 'a terminal with a shell',
    before: `pid, t = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh'])
os.write(t, b'kept=yes\\n')`,
    after: `os.write(t, b'echo is:$kept\\n'); wait_for(lambda: b'is:yes' in os.read(t, 4096))`,
    onOld: true,
  },
  {
    name: 'epoll',
    before: `r, w = os.pipe(); e = select.epoll(); e.register(r, select.EPOLLIN)`,
    after: `os.write(w, b'x'); assert e.poll(5) == [(r, select.EPOLLIN)]`,
    onOld: true,
  },
  {
    name: 'inotify',
    before: `os.mkdir('watched'); i = libc.inotify_init(); assert libc.inotify_add_watch(i, b'watched', 0x100) > 0`,
    after: `open('watched/new', 'w').close(); assert b'new' in os.read(i, 4096)`,
    onOld: true,
  },
  {
    name: 'an event counter',
    before: `e = libc.eventfd(0, 0); os.write(e, (3).to_bytes(8, 'little'))`,
    after: `assert int.from_bytes(os.read(e, 8), 'little') == 3`,
    onOld: true,
  },
  {
    name: 'System V shared memory',
    before: `i = libc.shmget(0, 4096, 0o1600); libc.shmat.restype = ctypes.c_void_p; at = libc.shmat(i, None, 0); ctypes.memset(at, 7, 16)`,
    after: `assert ctypes.string_at(at, 16) == bytes([7]) * 16`,
    onOld: true,
  },
  {
    name: 'POSIX shared memory',
    before: `s = shared_memory.SharedMemory(create=True, size=64); s.buf[0] = 5`,
    after: `t = shared_memory.SharedMemory(name=s.name); assert t.buf[0] == 5; t.close(); s.unlink()`,
    onOld: true,
  },
  {
    name: 'a file in memory',
    before: `f = os.memfd_create('m'); os.write(f, b'kept')`,
    after: `assert os.pread(f, 9, 0) == b'kept'`,
    onOld: true,
  },
  {
    name: 'a pending signal',
    before: `got = []; signal.signal(signal.SIGUSR1, lambda *_: got.append(1)); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)`,
    after: `assert not got; signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1]); wait_for(lambda: got)`,
    onOld: true,
  },
  {
    name: 'a zombie',
    before: `pid = fork(lambda: None); wait_for(lambda: state(pid) == 'Z')`,
    after: `assert os.waitpid(pid, 0) == (pid, 0)`,
    onOld: true,
  },
  {
    name: 'a stopped process',
    before: `p = subprocess.Popen(['sleep', '1000']); p.send_signal(signal.SIGSTOP); wait_for(lambda: state(p.pid) == 'T')`,
    after: `assert state(p.pid) == 'T'; p.send_signal(signal.SIGCONT); wait_for(lambda: state(p.pid) == 'S'); p.kill(); p.wait()`,
    onOld: true,
  },
  {
    name: 'file locks',
    before: `f = open('locked', 'w'); fcntl.flock(f, fcntl.LOCK_EX); g = open('locked', 'w')`,
    after: `assert fails(lambda: fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)); fcntl.flock(f, fcntl.LOCK_UN); fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)`,
    onOld: true,
  },
  {
    name: 'the offset of an open file',
    before: `open('o', 'w').write('0123456789'); f = open('o'); f = os.open('o', os.O_RDWR); os.read(f, 4)`,
    after: `assert os.read(f, 2) == b'45'; os.write(f, b'X'); assert open('o').read() == '012345X789'`,
    onOld: true,
  },
];

const PRELUDE = `
import ctypes, fcntl, mmap, os, pty, select, shutil, signal, socket, subprocess, tempfile, threading, time, traceback
from multiprocessing import shared_memory
libc = ctypes.CDLL(None)
def wait_for(holds):
  for _ in range(400):
    if holds(): return
    time.sleep(0.05)
  raise AssertionError('the condition never became true')
def state(pid): return open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[0]
def fork(work):
  pid = os.fork()
  if pid == 0:
    work()
    os._exit(0)
  return pid
def fails(work):
  try: work()
  except OSError: return True
  return False
`;

/** Prints `ready` when the state is created. Once the file `go` exists, it writes `ok` or an error to `result`. */
export function programOf({ before, after }: ProgramState, directory: string): string {
  return `${PRELUDE}
os.makedirs('${directory}', exist_ok=True)
os.chdir('${directory}')
${before}
print('ready', flush=True)
while not os.path.exists('${directory}.go'): time.sleep(0.05)
try:
${after.replace(/^/gm, '  ')}
  said = 'ok'
except BaseException: said = traceback.format_exc()
open('${directory}.said', 'w').write(said)
os.rename('${directory}.said', '${directory}.result')
time.sleep(1000)
`;
}
