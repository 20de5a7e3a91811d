import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { whyNoGvisor } from '../../packages/runtime-gvisor/testing/gvisor-world.ts';
import { recordPassed } from './compatibility-table.ts';
import { e2bServer } from './e2b-server.ts';

const run = promisify(execFile);

const PROGRAM = `
from e2b import Sandbox, SandboxQuery, SandboxState, CommandExitException, NotFoundException

sandbox = Sandbox.create(timeout=600, metadata={"by": "python"}, envs={"GREETING": "hello"})
assert sandbox.commands.run("echo $GREETING").stdout == "hello\\n"
try:
    sandbox.commands.run("exit 3")
    raise AssertionError("it did not fail")
except CommandExitException as failure:
    assert failure.exit_code == 3
sandbox.files.write("dir/a.txt", "kept")
assert sandbox.files.read("dir/a.txt") == "kept"
assert [entry.name for entry in sandbox.files.list("dir")] == ["a.txt"]
watch = sandbox.files.watch_dir("dir")
sandbox.files.write("dir/b.txt", "new")
names = []
for _ in range(100):
    names += [event.name for event in watch.get_new_events()]
    if "b.txt" in names:
        break
assert "b.txt" in names, names
watch.stop()
sleeper = sandbox.commands.run("sleep 1000", background=True, timeout=0)
assert sandbox.is_running()
sandbox.pause()
assert not sandbox.is_running()
woken = Sandbox.connect(sandbox.sandbox_id)
assert woken.files.read("dir/a.txt") == "kept"
assert sleeper.pid in [process.pid for process in woken.commands.list()]
listed = Sandbox.list(query=SandboxQuery(metadata={"by": "python"}, state=[SandboxState.RUNNING])).next_items()
assert [item.sandbox_id for item in listed] == [sandbox.sandbox_id]
woken.set_timeout(300)
assert woken.get_info().sandbox_id == sandbox.sandbox_id
assert woken.kill()
assert not Sandbox.kill(sandbox.sandbox_id)
from importlib.metadata import version
print("told", version("e2b"))
`;

const BUILDS = `
import os, tempfile
from e2b import BuildException, Sandbox, Template, default_build_logger, wait_for_file

context = tempfile.mkdtemp()
with open(os.path.join(context, "one.txt"), "w") as file:
    file.write("one")
template = (
    Template(file_context_path=context)
    .from_base_image()
    .set_envs({"LEVEL": "7"})
    .set_workdir("/srv/app")
    .copy("one.txt", "copied.txt")
    .run_cmd("echo $LEVEL > level")
    .set_start_cmd("touch /tmp/up; sleep 100000", wait_for_file("/tmp/up"))
)
first = Template.build(template, "of-python:v1", tags=["stable"], on_build_logs=default_build_logger())
sandbox = Sandbox.create("of-python:stable")
assert sandbox.commands.run("cat level copied.txt").stdout == "7\\none"
assert sandbox.commands.run("pgrep -c -x sleep").stdout == "1\\n"
sandbox.kill()
lines = []
Template.build(template, "of-python", on_build_logs=lambda entry: lines.append(entry.message))
assert any(line.startswith("CACHED [3/4] COPY") for line in lines), lines
assert Template.exists("of-python")
tags = {tag.tag: tag.build_id for tag in Template.get_tags("of-python")}
assert set(tags) == {"default", "stable", "v1"}, tags
assert tags["v1"] == tags["stable"] == first.build_id
assert Template.assign_tags("of-python:v1", "prod").build_id == first.build_id
Template.remove_tags("of-python", "prod")
try:
    Template.build(Template().from_base_image().run_cmd("exit 3"), "broken")
    raise AssertionError("it did not fail")
except BuildException as failure:
    assert "exit code 3" in str(failure), failure
assert Sandbox.delete_snapshot("of-python")
assert not Template.exists("of-python")
print("told")
`;

const dir = await mkdtemp(join(tmpdir(), 'torpor-python-'));
const noGvisor = await whyNoGvisor();
const noPackage = noGvisor ?? (await install().then(() => null, String));
if (noPackage !== null) console.log(`E2B's Python package is not tried: ${noPackage}`);

async function install(): Promise<void> {
  await run('python3', ['-m', 'venv', join(dir, 'venv')], { timeout: 120_000 });
  await run(join(dir, 'venv', 'bin', 'pip'), ['install', '--quiet', 'e2b'], { timeout: 300_000 });
}

afterAll(() => rm(dir, { recursive: true }));

describe.skipIf(noPackage !== null)('E2B’s Python package, in gVisor', () => {
  const passed: string[] = [];
  let version = '';
  afterEach(({ task }) => {
    if ((task.result?.errors ?? []).length === 0) passed.push(`"${task.name}"`);
  });
  afterAll(() => recordPassed({ name: '`e2b` for Python', version, over: 'http', passed }));

  it.each([
    ['creates, runs, writes, watches, sleeps, connects, lists and kills', PROGRAM],
    ['builds, tags, uses and deletes templates', BUILDS],
  ])('%s', async (_, program) => {
    const world = await e2bServer('http', 'gvisor');
    try {
      const env = { PATH: process.env['PATH'], HOME: dir, ...world.env };
      const { stdout } = await run(join(dir, 'venv', 'bin', 'python'), ['-c', program], { env });
      const [last = '', said] = (stdout.trim().split('\n').at(-1) ?? '').split(' ');
      expect(last).toBe('told');
      version = said ?? version;
    } finally {
      await world.dispose();
    }
  });
});
