/** The rules of `torpor template build`: Dockerfiles in real sandboxes, on a real server. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { startRegistry, type TestRegistry, testImage, whyNoRegistry } from '@torpor/images/testing';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { tinyRoot } from '../../packages/runtime-gvisor/testing/tiny-root.ts';
import { startTorpor, type TorporProcess } from '../crash/torpor-process.ts';

const why = (await whyNoGvisor()) ?? whyNoRegistry;
const PROGRAM = join(import.meta.dirname, '../../packages/cli/bin/torpor.mjs');

/** `short`: the rules that every change should keep, in a few seconds. */
export function dockerfileRules(extent: 'short' | 'all'): void {
  const title = `a Dockerfile${why === null ? '' : ` (${why})`}`;
  const isShort = extent === 'short';
  describe.skipIf(why !== null)(title, { timeout: 180_000 }, () => {
    let server: TorporProcess;
    let registry: TestRegistry;
    let place: string;

    beforeAll(async () => {
      place = await mkdtemp('/var/tmp/torpor-dockerfile-');
      registry = await startRegistry();
      server = await startTorpor(
        join(place, 'data'),
        { TORPOR_LOG_LEVEL: 'error', TORPOR_REGISTRY_NETWORKS: '127.0.0.1/32' },
        'gvisor',
      );
    }, 180_000);
    afterAll(async () => {
      await server?.end();
      await registry?.stop();
      await rm(place, { recursive: true });
    }, 60_000);

    /** Runs the command line as a user does. */
    async function build(dockerfile: readonly string[], ...flags: string[]) {
      const context = join(place, 'context');
      await writeFile(join(context, 'Dockerfile'), dockerfile.join('\n'));
      const env = { ...process.env, TORPOR_URL: server.url, TORPOR_API_KEY: server.apiKey, NO_COLOR: '1' };
      const args = [PROGRAM, 'template', 'build', context, '--name', 'app', ...flags];
      return promisify(execFile)(process.execPath, args, { env }).then(
        ({ stdout, stderr }) => ({ code: 0, stdout, steps: stepsIn(stderr), stderr }),
        (failed: { code: number; stdout: string; stderr: string }) => ({
          ...failed,
          steps: stepsIn(failed.stderr),
        }),
      );
    }
    const stepsIn = (stderr: string) =>
      stderr.split('\n').flatMap((line) => (line.startsWith('==> ') ? [line.slice(4)] : []));

    async function inSandbox(command: string): Promise<string> {
      const { id } = await server.torpor.sandboxes.create({ template: 'app' });
      const { stdout } = await server.torpor.sandboxes.exec(id, command);
      await server.torpor.sandboxes.kill(id);
      return stdout.trim();
    }
    const sandboxes = async () =>
      (await server.torpor.sandboxes.page({ state: ['running', 'paused'] })).items.map(({ name }) => name);

    it.runIf(isShort)('runs only the changed step again', async () => {
      await mkdir(join(place, 'context'), { recursive: true });
      const dockerfile = ['FROM base', 'RUN date +%s%N > /opt/when'];
      expect((await build([...dockerfile, 'RUN echo one > /opt/last'])).steps).toHaveLength(3);
      const when = await inSandbox('cat /opt/when');
      const changed = await build([...dockerfile, 'RUN echo two > /opt/last']);
      expect(changed.steps).toEqual([
        'FROM base',
        'CACHED RUN date +%s%N > /opt/when',
        'Line 3: RUN echo two > /opt/last',
      ]);
      expect(await inSandbox('cat /opt/when /opt/last')).toBe(`${when}\ntwo`);
    });

    it.skipIf(isShort)('is built once; afterwards only changed steps and those behind them run', async () => {
      await mkdir(join(place, 'context/src'), { recursive: true });
      await writeFile(join(place, 'context/.dockerignore'), '**/*.log\n');
      await writeFile(join(place, 'context/src/app.txt'), 'one');
      await writeFile(join(place, 'context/src/left-out.log'), 'x');
      const dockerfile = [
        'ARG FIRST=base',
        `FROM ${'$'}{FIRST} AS tools`,
        'RUN mkdir /made && date +%s%N > /made/when',
        '',
        'FROM base',
        'ARG LEVEL=1',
        `ENV LEVEL=${'$'}LEVEL PATH=/opt/bin:${'$'}PATH`,
        'WORKDIR /srv/app',
        'COPY --chown=user src/ ./',
        'COPY --from=tools /made/when /opt/when',
        'RUN ["/bin/sh", "-c", "echo level $LEVEL in $PWD as $(id -un) > /opt/run"]',
        'USER user',
        'RUN date +%s%N > /tmp/last',
      ];
      const first = await build(dockerfile, '--build-arg', 'LEVEL=7');
      expect([first.code, first.stdout]).toEqual([0, 'app\n']);
      expect(first.steps.filter((step) => step.startsWith('CACHED'))).toEqual([]);
      const shown =
        'cat /opt/run app.txt; stat -c %U app.txt; ls; id -un; echo $PWD $LEVEL; cat /opt/when /tmp/last';
      const [run, text, owner, list, user, where, when, last] = (await inSandbox(shown))
        .replace('one', 'one\n')
        .split('\n')
        .filter(Boolean);
      expect([run, text, owner, list, user, where]).toEqual([
        'level 7 in /srv/app as root',
        'one',
        'user',
        'app.txt',
        'user',
        '/srv/app 7',
      ]);

      const again = await build(dockerfile, '--build-arg', 'LEVEL=7');
      expect(again.steps.filter((step) => !/^(CACHED|FROM)/.test(step))).toEqual([]);
      expect(await inSandbox('cat /opt/when /tmp/last')).toBe(`${when}\n${last}`);

      const changed = await build(
        [...dockerfile.slice(0, -1), 'RUN echo new > /tmp/last'],
        '--build-arg',
        'LEVEL=7',
      );
      expect(changed.steps.filter((step) => !/^(CACHED|FROM)/.test(step))).toEqual([
        'Line 13: RUN echo new > /tmp/last',
      ]);
      expect(await inSandbox('cat /opt/when /tmp/last')).toBe(`${when}\nnew`);

      await writeFile(join(place, 'context/src/left-out.log'), 'y');
      await writeFile(join(place, 'context/src/app.txt'), 'two');
      const copied = await build(dockerfile, '--build-arg', 'LEVEL=7');
      expect(copied.steps.filter((step) => step.startsWith('CACHED'))).toEqual([
        'CACHED WORKDIR /srv/app',
        'CACHED RUN mkdir /made && date +%s%N > /made/when',
      ]);
      expect(await sandboxes()).toEqual([]);
    });

    it('that fails leaves the sandbox of the failed step, which can be entered', async () => {
      const failed = await build(['FROM base', 'RUN echo kept > /opt/kept', 'RUN echo why >&2; exit 3']);
      expect([failed.code, failed.steps.length]).toEqual([17, 3]);
      expect(failed.stderr).toContain('why');
      expect(failed.stderr).toContain('Line 3: RUN echo why >&2; exit 3 ended with exit code 3');
      const [, name = ''] = /torpor shell (build-app-\w+)/.exec(failed.stderr) ?? [];
      expect(await sandboxes()).toEqual([name]);
      const { items } = await server.torpor.sandboxes.page({ state: ['running'] });
      const [left] = items;
      if (left === undefined) throw new Error('No sandbox is left.');
      expect(await server.torpor.sandboxes.exec(left.id, 'cat /opt/kept')).toMatchObject({
        stdout: 'kept\n',
      });
      await server.torpor.sandboxes.kill(left.id);
    });

    it('that cannot be built is refused with its line, before anything runs', async () => {
      const refused = await build(['FROM base', 'RUN true', 'VOLUME /data']);
      expect([refused.code, refused.steps]).toEqual([17, []]);
      expect(refused.stderr).toContain('Line 3: VOLUME is not supported');
    });

    it.skipIf(isShort)('runs here-documents, and copies them as files', async () => {
      const built = await build([
        'FROM base',
        'ARG LEVEL=3',
        'RUN <<END',
        'set -e',
        'echo "level $LEVEL" > /opt/script',
        'END',
        'RUN cat <<END > /opt/shell',
        '$LEVEL',
        'END',
        'COPY --chown=user <<one <<"two" /opt/files/',
        'level $LEVEL',
        'one',
        'level $LEVEL',
        'two',
      ]);
      expect([built.code, built.stderr.includes('Line 3: RUN <<END')]).toEqual([0, true]);
      const shown = 'cd /opt; cat script shell files/one files/two; stat -c %U files/one';
      expect(await inSandbox(shown)).toBe('level 3\n3\nlevel 3\nlevel $LEVEL\nuser');
    });

    it.skipIf(isShort)('copies by patterns and through links, and keeps directories that exist', async () => {
      const context = join(place, 'context');
      await writeFile(join(context, '.dockerignore'), '*\n!src\n');
      await writeFile(join(context, '.env'), 'secret');
      await writeFile(join(context, 'src/app.txt'), 'one');
      const built = await build([
        'FROM base AS tools',
        'RUN mkdir /out && cd /out && echo a > a.jar && echo h > .h.jar && echo n > n.txt && ln -s a.jar link',
        'RUN tar -c -f /out/all.tar -C /out a.jar',
        'FROM base',
        'COPY . /context/',
        'COPY --from=tools /out/*.jar /jars/',
        'COPY --from=tools /out/link /linked',
        'COPY src /tmp',
        'COPY --from=tools /out/all.tar /made/',
      ]);
      expect(built).toMatchObject({ code: 0 });
      const shown = 'ls -A /context /jars /made; [ -L /linked ] || cat /linked /tmp/app.txt; stat -c %a /tmp';
      expect(await inSandbox(shown)).toBe(
        '/context:\nsrc\n\n/jars:\n.h.jar\na.jar\n\n/made:\nall.tar\na\none1777',
      );

      const missing = await build(['FROM base AS tools', 'FROM base', 'COPY --from=tools /no/*.txt /x']);
      expect(missing).toMatchObject({ code: 17 });
      expect(missing.stderr).toContain('Line 3: tools has no /no/*.txt.');
      expect(missing.stderr).not.toContain('torpor shell');
      const platform = await build(['FROM base', 'ARG TARGETARCH', 'RUN echo $TARGETARCH']);
      expect(platform.stderr).toContain('Line 2: TARGETARCH has no value');
      expect(await sandboxes()).toEqual([]);
    });

    it.skipIf(isShort)(
      'starts a command, and seals the template with its memory when it is ready',
      async () => {
        const serve = `const up = Date.now(); let n = 0; require('http').createServer((q, r) => {
        r.statusCode = Date.now() - up < 1500 ? 503 : 200; r.end(String(++n)) }).listen(3000)`;
        const service = ['--start-cmd', `node -e "${serve}"`, '--port', '3000', '--ready', '/health'];
        expect(await build(['FROM base', 'RUN true'], ...service)).toMatchObject({ code: 0 });
        const ask = 'curl -s localhost:3000/';
        const [first, second] = [Number(await inSandbox(ask)), Number(await inSandbox(ask))];
        // The requests before the seal are in the memory of every sandbox.
        expect([first > 2, second]).toEqual([true, first]);
        const never = ['--start-cmd', 'sleep 1000', '--port', '3000', '--ready-timeout', '2s'];
        expect((await build(['FROM base', 'RUN true'], ...never)).code).not.toBe(0);
        expect(await sandboxes()).toEqual([]);
      },
    );

    it.skipIf(isShort)('begins with an image, and its service runs in the template', async () => {
      const config = { Env: ['FROM_IMAGE=1'], WorkingDir: '/srv' };
      await registry.push('tiny', '1', testImage([await tinyRoot({ '/srv/note': 'x' })], { config }));
      const dockerfile = [
        `FROM ${registry.name}/tiny:1`,
        'ENV NAME=value',
        'RUN echo "$FROM_IMAGE $NAME $PWD" > /result',
      ];
      const started = 'echo up > /started; read x < /dev/zero';
      const built = await build(dockerfile, '--start-cmd', started);
      expect([built.code, built.stderr.includes('Fetching')]).toEqual([0, true]);
      const template = await server.torpor.templates.get('app');
      expect(template.services).toMatchObject([{ name: 'start', command: started }]);
      const { id } = await server.torpor.sandboxes.create({ template: 'app' });
      const files = server.torpor.sandboxes.files(id);
      expect(await files.readText('/result')).toBe('1 value /srv\n');
      expect(await files.readText('/started')).toBe('up\n');
      await server.torpor.sandboxes.kill(id);
    });
  });
}
