import { randomBytes } from 'node:crypto';
import { lstat, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { unhurried } from '@torpor/engine/testing';
import { AGENT_PORT, asUser } from '@torpor/envd';
import { tar } from '@torpor/host/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chosenRunsc } from '../../testing/chosen-runsc.ts';
import { dayOf, isRecent } from '../binaries/releases.mjs';
import { makeRoot } from './rootfs-template.ts';
import { type Guest, type GuestWorld, makeGuestWorld, whyNoGuests } from './testing/guest-world.ts';

const why = await whyNoGuests();
const runsc = await chosenRunsc();
const SLOW = 120_000;

describe.skipIf(why !== undefined)(
  `a guest${why === undefined ? '' : ` (${why})`}`,
  { timeout: SLOW },
  () => {
    let world: GuestWorld;
    let guest: Guest;
    const secret = randomBytes(16).toString('hex');

    beforeAll(async () => {
      process.env['TORPOR_TEST_SECRET'] = secret;
      world = await makeGuestWorld();
      guest = await world.boot();
      await guest.client.warmUp();
    }, SLOW);

    afterAll(async () => {
      delete process.env['TORPOR_TEST_SECRET'];
      await world?.dispose();
    }, SLOW);

    const output = async (line: string, user?: string) =>
      (await guest.sh(line, user === undefined ? {} : { user })).output.trim();
    const asRoot = (line: string) => output(line, 'root');

    describe('of base', () => {
      it('runs commands as user, in the home directory, with the programs of the host', async () => {
        expect(await output('id -un; id -u; pwd; echo $HOME; echo $USER')).toBe(
          'user\n1000\n/home/user\n/home/user\nuser',
        );
        for (const program of ['git', 'python3', 'node', 'gcc', 'perl']) {
          const isHere = await lstat(`/usr/bin/${program}`).then(
            () => true,
            () => false,
          );
          if (isHere) expect(await output(`${program} --version`), program).toMatch(/\d+\.\d+/);
        }
      });

      it('has a login shell with the same PATH as any shell', async () => {
        expect(await output(`bash -lc 'command -v sudo; echo $PATH'`)).toMatch(
          /^\/\.torpor\/bin\/sudo\n\/home\/user\/bin:\/home\/user\/\.local\/bin:\/\.torpor\/bin:\/usr\/local\/sbin:/,
        );
        expect((await guest.sh('bash -lc true')).errors).toBe('');
      });

      it('knows its host name and its resolver', async () => {
        expect(guest.init).toMatchObject({ hostnameSet: true, namesSet: true });
        expect(await output('hostname; cat /etc/resolv.conf; getent ahostsv4 sandbox | head -1')).toMatch(
          new RegExp(`^sandbox\nnameserver 192\\.0\\.2\\.1\n${guest.address}\\s+STREAM sandbox$`),
        );
      });

      it('has certificates, locales and a time zone', async () => {
        expect(await output('grep -c BEGIN /etc/ssl/certs/ca-certificates.crt').then(Number)).toBeGreaterThan(
          50,
        );
        const trusted = 'import ssl; print(ssl.create_default_context().cert_store_stats()["x509_ca"] > 50)';
        expect(await output(`python3 -c '${trusted}'`)).toBe('True');
        expect(await output('date +%Z; LC_ALL=C.UTF-8 locale charmap; locale charmap')).toBe(
          'UTC\nUTF-8\nUTF-8',
        );
        expect((await guest.sh('locale; perl -e 1; date -r /etc/localtime')).errors).toBe('');
      });

      it.skipIf(!isRecent(dayOf(runsc?.version.name)))('lists links without an error', async () => {
        await output('ln -s nowhere dangling');
        const places = '/bin /usr /dev /dev/fd/ /proc/self /proc/self/fd/0 dangling';
        expect((await guest.sh(`ls -l ${places}`)).errors).toBe('');
        expect((await guest.sh(`cd /home/user && ls -l / /etc ${places}`, { user: 'root' })).errors).toBe('');
      });

      it('writes and reads files everywhere, and gives new files to the user of the request', async () => {
        await guest.client.files.write('/home/user/a/b', 'text');
        expect(await output('stat -c "%U %a" a a/b; cat a/b')).toBe('user 755\nuser 644\ntext');
        await guest.client.files.write('/app/src/main', 'x');
        expect(await output('stat -c "%U %a" /app /app/src /app/src/main')).toBe(
          'user 755\nuser 755\nuser 644',
        );
        (await guest.client.files.read('/etc/shadow')).destroy();
        await guest.client.files.write('/etc/new', 'x', { user: 'root' });
        expect(await output('stat -c %U /etc/new')).toBe('root');
        await guest.client.files.write('/etc/new', 'y');
        expect(await output('stat -c %U /etc/new /etc')).toBe('user\nroot');
        const { entries } = await guest.client.filesystem.listDir({ path: '/root' });
        expect(entries).toBeInstanceOf(Array);
      });

      it('has a terminal of the requested size', async () => {
        const pty = { size: { cols: 101, rows: 33 } };
        let said = '';
        const command = {
          cmd: '/bin/bash',
          args: ['-c', 'stty size; tty; sudo sh -c "stty size; tty; id -u"'],
        };
        for await (const { event } of guest.client.process.start({ process: command, pty })) {
          if (event?.event.case === 'data')
            said += Buffer.from(event.event.value.output.value ?? []).toString();
        }
        expect(said).toMatch(/^33 101\r\n\/dev\/pts\/(\d+)\r\n33 101\r\n\/dev\/pts\/\d+\r\n0\r\n$/);
      });

      it('has a /proc that caches few entries, because all of them go into memory images', async () => {
        expect(await output('grep " /proc proc " /proc/mounts')).toMatch(/\bdentry_cache_limit=4\b/);
        expect(await asRoot('ps -o comm= -p 1')).toBe('tini');
      });

      it('keeps /tmp on the disk, where it takes no memory', async () => {
        await output('echo kept > /tmp/on-disk');
        expect((await lstat(join(guest.upper, 'tmp/on-disk'))).uid).toBe(1000);
      });
    });

    describe('answers', () => {
      it('a health check of any client, and nothing else without the token', async () => {
        await guest.unauthenticated.health();
        const refused = { code: 'unauthenticated' };
        await expect(guest.unauthenticated.envs()).rejects.toMatchObject(refused);
        await expect(guest.unauthenticated.ports()).rejects.toMatchObject(refused);
        await expect(guest.unauthenticated.metrics()).rejects.toMatchObject(refused);
        await expect(guest.unauthenticated.forward(80)).rejects.toMatchObject(refused);
        await expect(guest.unauthenticated.warmUp()).rejects.toMatchObject(refused);
        await expect(guest.unauthenticated.files.read('/etc/passwd')).rejects.toMatchObject(refused);
        await expect(guest.unauthenticated.process.list({})).rejects.toThrow(/unauthenticated/);
        await expect(guest.unauthenticated.init({ accessToken: '' })).rejects.toMatchObject(refused);
      });

      it('on one port, with the same rules for clients inside', async () => {
        const listening = await asRoot(`cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" { print $2 }'`);
        expect(listening).toBe(`00000000:${AGENT_PORT.toString(16).toUpperCase()}`);
        const inside = `
import urllib.request, urllib.error
try: urllib.request.urlopen('http://127.0.0.1:${AGENT_PORT}/envs')
except urllib.error.HTTPError as e: print(e.code)`;
        expect(await output(`python3 -c "${inside}"`)).toBe('401');
      });

      it('without a secret that its users can find', async () => {
        const places = 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" "\\n"; ls -a /';
        const found = await output(places);
        expect(found).not.toContain(guest.credential);
        expect(found).not.toContain(guest.token);
        expect(found).not.toMatch(/^\.torpor-credential$/m);
      });
    });

    describe('with sudo', () => {
      it('runs commands as root or another user without a password', async () => {
        expect(await output('sudo id -u; sudo -u nobody id -un; sudo -n whoami')).toBe('0\nnobody\nroot');
        expect(await output('sudo sh -c "echo $HOME; pwd" | tail -1; sudo -i pwd')).toBe('/home/user\n/root');
        expect((await guest.sh('sudo sh -c "exit 7"')).exitCode).toBe(7);
        expect(await output('printf "a\\nb\\n" | while read x; do sudo true; echo $x; done')).toBe('a\nb');
        expect(await output('echo through | sudo tee /etc/motd; stat -c %U /etc/motd')).toBe('through\nroot');
        expect(await output('sudo -l')).toContain('NOPASSWD: ALL');
      });

      it('is refused to other users by the kernel', async () => {
        for (const user of ['nobody', 'www-data']) {
          const refusal = await guest.sh('sudo id', { user });
          expect(refusal).toMatchObject({
            output: '',
            exitCode: 1,
            errors: expect.stringContaining('may not use sudo'),
          });
          const attempt = `
import socket
for uid in (0, 1000):
  try: socket.socket(socket.AF_UNIX).connect('/.torpor/run/sudo/%d.sock' % uid); print('in')
  except OSError as e: print(type(e).__name__)`;
          expect(await output(`python3 -c "${attempt}"`, user)).toBe('PermissionError\nPermissionError');
        }
      });

      it('follows changes of the group', async () => {
        await asRoot('echo "ann:x:1500:1500::/tmp:/bin/sh" >> /etc/passwd');
        expect((await guest.sh('sudo id -u', { user: 'ann' })).exitCode).toBe(1);
        await asRoot(`sed -i 's/^sudo:.*/sudo:x:27:user,ann/' /etc/group`);
        await expect.poll(() => output('sudo id -u', 'ann'), { timeout: 20_000 }).toBe('0');
        await output(`sudo sed -i 's/^sudo:.*/sudo:x:27:user/' /etc/group`);
        const code = async () => (await guest.sh('sudo id -u', { user: 'ann' })).exitCode;
        await expect.poll(code, { timeout: 20_000 }).toBe(1);
      });

      it('lets root do what package scripts do: change owners, bind low ports, add users', async () => {
        const line = `touch f && sudo chown www-data:adm f && stat -c %U:%G f && sudo chmod 600 f
        sudo python3 -c "import socket; socket.socket().bind(('0.0.0.0', 80)); print('bound')"
        sudo useradd -m eve && id -u eve`;
        expect(await output(line)).toMatch(/^www-data:adm\nbound\n\d+$/);
      });
    });

    describe('with a port that', () => {
      const serve = (host: string, port: number) =>
        `cd /tmp && (python3 -m http.server --bind ${host} ${port} >/dev/null 2>&1 &)`;
      const get = (port: number) =>
        fetch(`http://${guest.address}:${port}/`, { signal: AbortSignal.timeout(20_000) }).then(
          (answer) => answer.status,
        );

      it('listens only on the loopback is reached through a relay, which is not listed among the ports', async () => {
        await guest.sh(serve('127.0.0.1', 8000));
        await expect.poll(() => guest.client.forward(8000), { timeout: 20_000 }).not.toBeNull();
        const reached = (await guest.client.forward(8000)) ?? 0;
        expect(reached).not.toBe(8000);
        await expect(get(8000)).rejects.toThrow();
        expect(await get(reached)).toBe(200);
        const ports = (await guest.client.ports()).map(({ port, processName }) => [port, processName]);
        expect(ports).toEqual([[8000, 'python3']]);
        await guest.sh('pkill -f http.server');
        await expect.poll(() => guest.client.forward(8000), { timeout: 20_000 }).toBeNull();
      });

      it('listens on every address is reached directly', async () => {
        await guest.sh(serve('0.0.0.0', 8001));
        await expect.poll(() => guest.client.forward(8001), { timeout: 20_000 }).toBe(8001);
        expect(await get(8001)).toBe(200);
        await guest.sh('pkill -f http.server');
      });
    });

    describe('sees of the host', () => {
      const marks: string[] = [];

      beforeAll(async () => {
        for (const directory of ['/root', '/home', '/var/tmp', '/tmp', '/etc', '/opt']) {
          const mark = join(directory, `torpor-mark-${secret}`);
          await writeFile(mark, secret, { mode: 0o644 });
          marks.push(mark);
        }
      });

      afterAll(async () => {
        for (const mark of marks) await rm(mark, { force: true });
      });

      it('no files outside the system directories, not even as root', async () => {
        for (const mark of marks) expect(await asRoot(`cat ${mark} 2>&1`), mark).toContain('No such file');
        const data = await asRoot(`ls ${world.directory} ${process.cwd()} 2>&1`);
        expect(data.match(/No such file/g)).toHaveLength(2);
        expect(await asRoot('ls -A /root /home /opt /srv /mnt /media')).not.toContain(secret);
      });

      it('no passwords, keys or user names', async () => {
        expect(await asRoot('cat /etc/shadow')).not.toContain('$');
        expect(await asRoot('ls /etc/ssh /etc/ssl/private 2>&1 | grep -v "No such"')).toBe('');
        expect(await asRoot('cut -d: -f1 /etc/passwd | sort | head -3')).toBe('_apt\nann\nbackup');
      });

      it('no protected files in system directories, and no settings of its users', async () => {
        const [hidden] = world.system.binds.filter(({ destination }) => destination === '/usr/local/etc');
        expect(hidden).toBeDefined();
        for (const { source, destination } of world.system.binds) {
          if (source.endsWith('/empty')) expect(await asRoot(`ls -A ${destination}`), destination).toBe('');
          if (source.endsWith('/empty-file'))
            expect(await asRoot(`cat ${destination}`), destination).toBe('');
        }
        const left = `find /usr -maxdepth 3 \\( -type f -o -type d \\) ! -perm -o+r -size +0 | head`;
        expect(await asRoot(left)).toBe('');
      });

      it('neither environment nor processes', async () => {
        const all = await asRoot('cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr "\\0" "\\n"');
        expect(all).not.toContain(secret);
        expect(all).not.toContain('runsc');
        expect(await asRoot('cat /proc/1/cmdline | tr "\\0" " "')).toMatch(/^\/\.torpor\/tini /);
      });

      it('no devices', async () => {
        expect(await asRoot('find /dev -type b')).toBe('');
        const names = (await asRoot('ls /dev')).split('\n');
        expect(
          names.filter((name) => /^(mem|kmem|kmsg|kvm|port|console|[hsv]d|nvme|loop|dm-|mapper)/.test(name)),
        ).toEqual([]);
        expect(await asRoot('mknod /tmp/disk b 8 0 2>&1; mknod /tmp/mem c 1 1 2>&1; ls /tmp')).not.toMatch(
          /^(disk|mem)$/m,
        );
      });
    });

    describe('cannot change the host, even when it remounts its own mounts', () => {
      const writes =
        'touch /usr/torpor-was-here /.torpor/torpor-was-here /etc/alternatives/torpor-was-here 2>/dev/null';
      const remount = 'for m in /usr /.torpor /etc/alternatives; do mount -o remount,rw $m; done 2>/dev/null';

      it.each([
        ['as it is', writes],
        ['after a remount', `${remount}; ${writes}`],
        ['after a remount in a user namespace of its own', `unshare -Urm sh -c '${remount}; ${writes}'`],
        [
          'through a second mount',
          `mkdir -p /mnt/u; mount --bind /usr /mnt/u; mount -o remount,rw /mnt/u; touch /mnt/u/torpor-was-here`,
        ],
      ])('%s', async (_, line) => {
        await asRoot(line);
        for (const directory of ['/usr', '/etc/alternatives', world.tools.directory]) {
          await expect(lstat(join(directory, 'torpor-was-here')), directory).rejects.toThrow('ENOENT');
        }
      });

      it('and sees nothing below covered paths', async () => {
        const [covered] = world.system.binds.filter(({ source }) => source.endsWith('/empty'));
        const place = covered?.destination ?? '';
        expect(
          await asRoot(`umount ${place} 2>/dev/null; umount -l ${place} 2>/dev/null; ls -A ${place}`),
        ).toBe('');
      });
    });

    describe('of an empty root', () => {
      it('has an agent that serves files, without a shell', async () => {
        const [archive, root] = [join(world.directory, 'empty.tar'), join(world.directory, 'empty')];
        await writeFile(archive, tar());
        await mkdir(root);
        await makeRoot({ archive }, root, unhurried);
        const bare = await world.boot({ template: { root } });
        await bare.client.warmUp();
        await bare.client.files.write('/home/user/a', 'text');
        const { entry } = await bare.client.filesystem.stat(
          { path: '/home/user/a' },
          { headers: asUser('user') },
        );
        expect(entry).toMatchObject({ owner: 'user', size: 4n });
        const [loader = '', ...words] = world.tools.loader;
        let said = '';
        const command = { cmd: loader, args: [...words, '/.torpor/node', '-p', '6*7'] };
        for await (const { event } of bare.client.process.start({ process: command })) {
          if (event?.event.case === 'data')
            said += Buffer.from(event.event.value.output.value ?? []).toString();
        }
        expect(said).toBe('42\n');
        await expect(bare.sh('true')).rejects.toThrow(/cannot be started/);
        await bare.stop();
      });
    });

    describe('whose policy has no sudo', () => {
      it('cannot become root', async () => {
        const locked = await world.boot({ sudo: false });
        expect(await locked.sh('sudo id')).toMatchObject({ output: '', exitCode: 1 });
        await locked.stop();
      });
    });
  },
);
