import { lstat, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connectAgent } from '@torpor/envd';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import {
  type Guest,
  type GuestWorld,
  type Image,
  makeGuestWorld,
  whyNoGuests,
} from './testing/guest-world.ts';

const why = await whyNoGuests();
const SLOW = 120_000;

/** Counts connections on the loopback and on a socket in /tmp, and keeps a file open. */
const PROGRAM = `
const { createServer } = require('node:http');
const { appendFileSync, openSync, writeSync } = require('node:fs');
const log = openSync('/home/user/log', 'a');
let count = 0;
const answer = (_, response) => { count += 1; writeSync(log, count + '\\n'); response.end(String(count)); };
createServer(answer).listen(3000, '127.0.0.1');
createServer(answer).listen('/tmp/counter.sock');
`;

describe.skipIf(why !== undefined)(
  `a guest that is restored${why === undefined ? '' : ` (${why})`}`,
  { timeout: SLOW },
  () => {
    let world: GuestWorld;
    let image: Image;
    let before: Guest;
    let relay: number;
    const awake: Guest[] = [];

    /** Closes its connection: a guest with an open one cannot be captured. */
    const count = async (guest: Guest, port: number) => {
      const socket = connect({ host: guest.address, port });
      socket.write('GET / HTTP/1.0\r\n\r\n');
      const answer = await text(socket);
      socket.resetAndDestroy();
      return answer.split('\r\n').at(-1);
    };

    beforeAll(async () => {
      world = await makeGuestWorld();
      before = await world.boot();
      await before.client.warmUp();
      await before.client.files.write('/home/user/program.cjs', PROGRAM);
      const command = {
        cmd: world.tools.loader[0] ?? '',
        args: [...world.tools.loader.slice(1), '/.torpor/node', 'program.cjs'],
      };
      const events = before.client.process.start({ process: command, tag: 'counter' });
      for await (const { event } of events) if (event?.event.case === 'start') break;
      await vi.waitFor(async () => expect(await before.client.forward(3000)).not.toBeNull(), 20_000);
      relay = (await before.client.forward(3000)) ?? 0;
      expect(await count(before, relay)).toBe('1');
      image = await before.sleep();
      // Two guests from one image, which run at the same time.
      for (const hostname of ['left', 'right']) awake.push(await world.wake(image, { hostname }));
    }, SLOW);

    afterAll(() => world?.dispose(), SLOW);

    const both = <T>(work: (guest: Guest) => Promise<T>) => Promise.all(awake.map(work));

    it('answers again, with its programs, their memory, sockets and open files', async () => {
      for (const guest of awake) {
        const { processes } = await guest.client.process.list({});
        expect(processes.map(({ tag }) => tag)).toEqual(['counter']);
        expect(await count(guest, relay)).toBe('2');
        const local = `import socket
s = socket.socket(socket.AF_UNIX); s.connect('/tmp/counter.sock')
s.send(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.makefile().read()[-1])`;
        expect((await guest.sh(`python3 -c "${local}"`)).output).toBe('3\n');
        expect((await guest.sh('cat log')).output).toBe('1\n2\n3\n');
      }
    });

    it('forwards the same port as before, over the same relay', async () => {
      expect(await both((guest) => guest.client.forward(3000))).toEqual([relay, relay]);
      expect(await both(async (guest) => (await guest.client.ports()).map(({ port }) => port))).toEqual([
        [3000],
        [3000],
      ]);
    });

    it('accepts the new credential and token, and no earlier ones', async () => {
      const [left, right] = awake as [Guest, Guest];
      const refused = { code: 'unauthenticated' };
      for (const old of [image.credential, right.credential, '']) {
        await expect(
          left.unauthenticated.init({ accessToken: 'mine' }, { credential: old }),
        ).rejects.toMatchObject(refused);
      }
      for (const accessToken of [before.token, right.token, undefined]) {
        const client = connectAgent({ baseUrl: `http://${left.address}:49983`, accessToken });
        await expect(client.envs()).rejects.toMatchObject(refused);
        client.close();
      }
      expect(await left.client.envs()).toEqual({});
      const envs = { FRESH: '1' };
      await left.unauthenticated.init({ envs }, { credential: left.credential });
      expect((await left.sh('echo $FRESH')).output).toBe('1\n');
    });

    it('has the host name, the address and the time of its new start', async () => {
      const names = await both(
        async (guest) => (await guest.sh('hostname; getent ahostsv4 $(hostname) | head -1')).output,
      );
      expect(names).toEqual(
        awake.map(({ address }, index) =>
          expect.stringMatching(new RegExp(`^${['left', 'right'][index]}\n${address} `)),
        ),
      );
      const clocks = await both(async (guest) => Number((await guest.sh('date +%s')).output));
      for (const clock of clocks) expect(Math.abs(clock - Date.now() / 1000)).toBeLessThan(20);
      const { ts } = await (awake[0] as Guest).client.metrics();
      expect(Math.abs(ts - Date.now() / 1000)).toBeLessThan(20);
    });

    it('generates other ids than a guest from the same image', async () => {
      const ids = await both(async (guest) => {
        const watches = [1, 2].map(() => guest.client.filesystem.createWatcher({ path: '/home/user' }));
        return (await Promise.all(watches)).map(({ watcherId }) => watcherId);
      });
      expect(new Set(ids.flat()).size).toBe(4);
      const kernel = await both(
        async (guest) => (await guest.sh('head -c 16 /dev/urandom | od -An -tx1')).output,
      );
      expect(kernel[0]).not.toBe(kernel[1]);
    });

    it('has working sudo, terminals and files', async () => {
      for (const guest of awake) {
        expect((await guest.sh('sudo id -u')).output).toBe('0\n');
        await guest.client.files.write('/home/user/mine', guest.address);
        expect((await guest.sh('cat mine; stat -c %U mine')).output).toBe(`${guest.address}user\n`);
        let said = '';
        const pty = { size: { cols: 80, rows: 24 } };
        const command = { cmd: '/bin/sh', args: ['-c', 'stty size'] };
        for await (const { event } of guest.client.process.start({ process: command, pty })) {
          if (event?.event.case === 'data')
            said += Buffer.from(event.event.value.output.value ?? []).toString();
        }
        expect(said).toBe('24 80\r\n');
      }
    });

    it('writes to its own layer, and neither to that of the other guest nor to that of the captured one', async () => {
      const [left, right] = awake as [Guest, Guest];
      await left.client.files.write('/home/user/only-left', 'x');
      expect((await right.sh('ls only-left')).exitCode).not.toBe(0);
      expect(await readFile(`${image.layers[0]}/home/user/log`, 'utf8')).toBe('1\n');
    });

    it('does not keep /proc entries of ended programs in its memory image', async () => {
      const busy = await world.boot();
      await busy.sh('for i in $(seq 100); do cat /proc/self/stat; done; ps');
      const { path } = await busy.sleep();
      const { size } = await lstat(join(path, 'checkpoint.img'));
      expect(size).toBeLessThan(3 * 1024 * 1024);
    });

    it('can be captured and restored again', async () => {
      const guest = awake.pop() as Guest;
      const again = await world.wake(await guest.sleep(), { hostname: 'third' });
      expect(await count(again, relay)).toBe('4');
      expect((await again.sh('hostname; sudo whoami')).output).toBe('third\nroot\n');
    });
  },
);
