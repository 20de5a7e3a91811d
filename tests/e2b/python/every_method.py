"""
A program that was written for E2B's Python package and knows nothing of Torpor: it finds its server by E2B's own variables.

    E2B_API_KEY=... E2B_API_URL=... E2B_SANDBOX_URL=... python every_method.py sync|async

It checks that it has called every public method of the package. The same lines run with both clients of the package: a
result that can be awaited is awaited.
"""

import asyncio
import inspect
import os
import sys
import tempfile
from importlib.metadata import version

import e2b
from e2b import NotFoundException, PtySize, SandboxQuery, SandboxState, wait_for_file

IS_ASYNC = sys.argv[1] == "async"
Sandbox = e2b.AsyncSandbox if IS_ASYNC else e2b.Sandbox
Template = e2b.AsyncTemplate if IS_ASYNC else e2b.Template
Volume = e2b.AsyncVolume if IS_ASYNC else e2b.Volume
Secret = e2b.AsyncSecret if IS_ASYNC else e2b.Secret

called = set()


def watch(frame, event, _):
    """Notes the methods of the package that are called."""
    module = str(frame.f_globals.get("__name__"))
    if event == "call" and module.startswith("e2b."):
        called.add((module, frame.f_code.co_qualname))


async def done(result):
    return await result if inspect.isawaitable(result) else result


async def fails(result_of, kind, words=""):
    try:
        await done(result_of())
    except kind as failure:
        assert words in str(failure), failure
        return
    raise AssertionError("it did not fail")


async def until(holds, what):
    for _ in range(600):
        if await done(holds()):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"It did not come to be: {what}.")


async def ids_of(pages, key):
    found = []
    while pages.has_next:
        found += [getattr(item, key) for item in await done(pages.next_items())]
    return found


async def commands(sandbox):
    run = sandbox.commands.run
    result = await done(run("echo $GREETING; echo oops >&2"))
    assert (result.stdout, result.stderr, result.exit_code) == ("hello\n", "oops\n", 0), result
    await fails(lambda: run("exit 3"), e2b.CommandExitException)
    reader = await done(run("cat > /tmp/read", background=True, stdin=True, timeout=0))
    assert reader.pid in [process.pid for process in await done(sandbox.commands.list())]
    await done(sandbox.commands.send_stdin(reader.pid, "one "))
    await done(reader.send_stdin("two "))
    if IS_ASYNC:
        typing = sandbox.commands.stream_input(reader.pid)
        await typing.send("three")
        await typing.close()
    else:
        sandbox.commands.stream_input(reader.pid, ["th", "ree"])
    await done(sandbox.commands.close_stdin(reader.pid))
    assert (await done(reader.wait())).exit_code == 0
    assert await done(sandbox.files.read("/tmp/read")) == "one two three"
    other = await done(run("cat", background=True, stdin=True, timeout=0))
    await done(other.close_stdin())
    assert (await done(other.wait())).exit_code == 0
    first = await done(run("sleep 1000", background=True, timeout=0))
    await done(first.disconnect())
    again = await done(sandbox.commands.connect(first.pid))
    assert await done(again.kill())
    second = await done(run("sleep 1000", background=True, timeout=0))
    assert await done(sandbox.commands.kill(second.pid))
    assert not await done(sandbox.commands.kill(999_999))


async def terminals(sandbox):
    size = PtySize(cols=80, rows=24)
    seen = bytearray()
    create = {"on_data": seen.extend} if IS_ASYNC else {}
    terminal = await done(sandbox.pty.create(size, timeout=0, **create))
    await done(sandbox.pty.resize(terminal.pid, PtySize(cols=101, rows=31)))
    await done(sandbox.pty.send_stdin(terminal.pid, b"stty size > /tmp/size\n"))
    await until(lambda: sandbox.files.exists("/tmp/size"), "the terminal answers")
    if IS_ASYNC:
        typing = sandbox.pty.stream_input(terminal.pid)
        await typing.send(b"echo typed > /tmp/typed\n")
        await typing.close()
    else:
        sandbox.pty.stream_input(terminal.pid, [b"echo typed > /tmp/typed\n"])
    await until(lambda: sandbox.files.exists("/tmp/typed"), "the terminal reads the stream")
    await until(lambda: text_is(sandbox, "/tmp/size", "31 101\n"), "the terminal has its new size")
    await done(terminal.disconnect())
    connect = {"on_data": seen.extend} if IS_ASYNC else {}
    await done((await done(sandbox.pty.connect(terminal.pid, **connect))).disconnect())
    assert await done(sandbox.pty.kill(terminal.pid))


async def text_is(sandbox, path, text):
    return await done(sandbox.files.read(path)) == text


async def files(sandbox):
    disk = sandbox.files
    await done(disk.write("dir/a.txt", "kept", metadata={"author": "ada"}))
    await done(disk.write_files([{"path": "many/1", "data": "one"}, {"path": "many/2", "data": b"two"}]))
    assert await done(disk.read("dir/a.txt")) == "kept"
    assert await done(disk.read("many/2", format="bytes")) == b"two"
    stream = await done(disk.read("many/1", format="stream"))
    pieces = [piece async for piece in stream] if IS_ASYNC else list(stream)
    assert b"".join(pieces) == b"one"
    await done(stream.aclose() if IS_ASYNC else stream.close())
    assert (await done(disk.get_info("dir/a.txt"))).metadata == {"author": "ada"}
    assert [entry.name for entry in await done(disk.list("many"))] == ["1", "2"]
    assert await done(disk.make_dir("made"))
    assert not await done(disk.make_dir("made"))
    assert (await done(disk.rename("many/1", "made/one"))).path == "/home/user/made/one"
    await done(disk.remove("many"))
    assert not await done(disk.exists("many"))
    names = []
    if IS_ASYNC:
        watcher = await disk.watch_dir("made", on_event=lambda event: names.append(event.name))
    else:
        watcher = disk.watch_dir("made")
    await done(disk.write("made/new", "x"))
    if not IS_ASYNC:
        names += [event.name for event in watcher.get_new_events()]
    await until(lambda: "new" in names, "the watch saw the file")
    await done(watcher.stop())
    assert "signature" in sandbox.download_url("dir/a.txt")
    assert "signature" in sandbox.upload_url("dir/b.txt")


async def git(sandbox):
    tool = sandbox.git
    origin, work, other = "/home/user/origin.git", "/home/user/work", "/home/user/other"
    await done(tool.init(origin, bare=True, initial_branch="main"))
    await done(tool.configure_user("Ada", "ada@example.com"))
    await done(tool.set_config("pull.rebase", "false"))
    assert await done(tool.get_config("user.name")) == "Ada"
    await done(tool.init(work, initial_branch="main"))
    await done(sandbox.files.write(f"{work}/a.txt", "1"))
    assert not (await done(tool.status(work))).is_clean
    await done(tool.add(work))
    await done(tool.commit(work, "first"))
    await done(tool.remote_add(work, "origin", origin))
    assert await done(tool.remote_get(work, "origin")) == origin
    await done(tool.push(work, remote="origin", branch="main"))
    await done(tool.clone(origin, path=other))
    await done(tool.create_branch(work, "side"))
    await done(tool.checkout_branch(work, "main"))
    assert sorted((await done(tool.branches(work))).branches) == ["main", "side"]
    await done(tool.delete_branch(work, "side"))
    await done(sandbox.files.write(f"{work}/a.txt", "2"))
    await done(tool.restore(work, paths=["a.txt"]))
    await done(tool.reset(work, mode="hard"))
    await done(tool.commit(work, "second", allow_empty=True))
    await done(tool.push(work))
    await done(tool.pull(other))
    assert "second" in (await done(sandbox.commands.run(f"git -C {other} log --oneline"))).stdout
    await done(tool.dangerously_authenticate("ada", "secret", host="git.example.com"))


async def lifecycle(sandbox):
    sandbox_id = sandbox.sandbox_id
    assert await done(sandbox.is_running())
    assert (await done(sandbox.get_info())).sandbox_id == sandbox_id
    assert (await done(Sandbox.get_info(sandbox_id))).sandbox_id == sandbox_id
    query = SandboxQuery(metadata={"by": "python"}, state=[SandboxState.RUNNING])
    assert await ids_of(Sandbox.list(query=query, limit=1), "sandbox_id") == [sandbox_id]
    [figures] = await done(sandbox.get_metrics())
    assert figures.mem_total > figures.mem_used > 0
    await done(sandbox.update_network({"allow_internet_access": False}))
    await done(Sandbox.update_network(sandbox_id, {}))
    await done(sandbox.set_timeout(900))
    assert sandbox.get_host(3000).startswith(f"3000-{sandbox_id}.")

    sleeper = await done(sandbox.commands.run("sleep 1000", background=True, timeout=0))
    assert await done(sandbox.pause())
    assert not await done(Sandbox.pause(sandbox_id))
    assert not await done(sandbox.beta_pause())
    assert not await done(sandbox.is_running())
    woken = await done(Sandbox.connect(sandbox_id))
    assert await done(woken.files.read("dir/a.txt")) == "kept"
    assert sleeper.pid in [process.pid for process in await done(woken.commands.list())]
    assert await done(woken.pause(mode="filesystem"))
    await done(sandbox.connect())
    assert await done(sandbox.commands.list()) == []

    plain = await done(sandbox.create_snapshot())
    await done(Sandbox.create_snapshot(sandbox_id, name="named"))
    await fails(lambda: sandbox.create_snapshot(mode="filesystem"), e2b.SandboxException, "not supported yet")
    assert plain.snapshot_id in await ids_of(sandbox.list_snapshots(limit=1), "snapshot_id")
    copy = await done(Sandbox.create("named", timeout=300))
    assert await done(copy.files.read("dir/a.txt")) == "kept"
    assert await done(copy.kill())
    for snapshot_id in await ids_of(Sandbox.list_snapshots(), "snapshot_id"):
        assert await done(Sandbox.delete_snapshot(snapshot_id))
    for child in [*await done(sandbox.fork(count=2)), *await done(Sandbox.fork(sandbox_id))]:
        assert await done(child.files.read("dir/a.txt")) == "kept"
        assert await done(child.kill())


def builder(context):
    return Template(file_context_path=context)


async def building():
    context = tempfile.mkdtemp()
    with open(os.path.join(context, "one.txt"), "w") as file:
        file.write("one")
    template = (
        builder(context)
        .from_base_image()
        .set_envs({"LEVEL": "7"})
        .set_workdir("/srv/app")
        .copy("one.txt", "copied.txt")
        .copy_items([{"src": "one.txt", "dest": "dir/"}])
        .run_cmd("echo $LEVEL > level")
        .make_dir("made")
        .rename("dir/one.txt", "made/one")
        .make_symlink("made/one", "link")
        .remove("dir", recursive=True)
        .set_start_cmd("touch /tmp/up; sleep 100000", wait_for_file("/tmp/up"))
    )
    first = await done(Template.build(template, "of-python:v1", tags=["stable"], on_build_logs=e2b.default_build_logger()))
    sandbox = await done(Sandbox.create("of-python:stable"))
    shown = await done(sandbox.commands.run("cat level copied.txt link; ls; pgrep -c -x sleep"))
    assert shown.stdout == "7\noneonecopied.txt\nlevel\nlink\nmade\n1\n", shown
    await done(sandbox.kill())
    lines = []
    await done(Template.build(template, "of-python", on_build_logs=lambda entry: lines.append(entry.message)))
    assert any(line.startswith("CACHED") and "COPY one.txt copied.txt" in line for line in lines), lines
    assert await done(Template.exists("of-python"))
    assert await done(Template.alias_exists("of-python"))
    tags = {tag.tag: tag.build_id for tag in await done(Template.get_tags("of-python"))}
    assert set(tags) == {"default", "stable", "v1"}, tags
    assert tags["v1"] == tags["stable"] == first.build_id
    assert (await done(Template.assign_tags("of-python:v1", "prod"))).build_id == first.build_id
    await done(Template.remove_tags("of-python", "prod"))

    more = builder(context).from_template("of-python").skip_cache().set_user("builder").run_cmd(
        "git init -q /tmp/origin && git -C /tmp/origin -c user.name=a -c user.email=a@b commit -q --allow-empty -m x"
    )
    more = more.git_clone("/tmp/origin", "/tmp/clone").skip_cache().set_ready_cmd("[ -d /tmp/clone/.git ]")
    begun = await done(Template.build_in_background(more, "more"))

    async def is_ready():
        status = await done(Template.get_build_status(begun))
        assert status.status.value != "error", status
        return status.status.value == "ready"

    await until(is_ready, "the build is ready")
    broken = builder(context).skip_cache().from_base_image().run_cmd("exit 3")
    await fails(lambda: Template.build(broken, "broken"), e2b.BuildException, "exit code 3")
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "eu-west-1"}
    aws = builder(context).from_aws_registry("ghcr.io/acme/x:1", **keys)
    await fails(lambda: Template.build(aws, "aws"), e2b.BuildException, "not a registry of AWS")
    for name in ["of-python", "more"]:
        assert await done(Sandbox.delete_snapshot(name))
    assert not await done(Template.exists("of-python"))
    images(context)


def images(context):
    """These name an image of a registry, or are commands of the programs that they name."""
    made = [
        builder(context).from_debian_image(),
        builder(context).from_ubuntu_image(),
        builder(context).from_fedora_image(),
        builder(context).from_alpine_image(),
        builder(context).from_arch_image(),
        builder(context).from_python_image(),
        builder(context).from_node_image(),
        builder(context).from_bun_image(),
        builder(context).from_image("debian:12"),
        builder(context).from_gcp_registry("gcr.io/a/b", {"type": "service_account"}),
        builder(context).from_dockerfile("FROM debian:12\nRUN true"),
    ]
    tools = builder(context).from_base_image().pip_install("a").npm_install("b").bun_install("c").apt_install("d")
    assert '"pip install a"' in Template.to_json(tools)
    assert Template.to_dockerfile(made[0].run_cmd("true")).startswith("FROM debian:")


TOOL = """cat > /usr/local/bin/NAME <<'END'
#!/bin/sh
echo "NAME $*" >> /var/log/NAME
mkdir -p /etc/mcp-gateway && printf %s "$GATEWAY_ACCESS_TOKEN" > /etc/mcp-gateway/.token
END
chmod 755 /usr/local/bin/NAME; printf '#!/bin/sh\\necho prepared\\n' > /prepare-exec.sh; chmod 755 /prepare-exec.sh"""


async def gateways():
    """With templates of these names, the calls for them work."""
    for name in ["mcp-gateway", "devcontainer"]:
        made = builder(None).from_base_image().run_cmd(TOOL.replace("NAME", name), user="root")
        await done(Template.build(made, name))
    served = builder(None).from_template("mcp-gateway").add_mcp_server("exa")
    await done(Template.build(served, "served"))
    sandbox = await done(Sandbox.create("served", timeout=300, mcp={"exa": {"apiKey": "x"}}))
    assert sandbox.get_mcp_url() == f"https://{sandbox.get_host(50005)}/mcp"
    again = await done(Sandbox.connect(sandbox.sandbox_id))
    assert await done(again.get_mcp_token()) == await done(sandbox.get_mcp_token()) != ""
    log = await done(sandbox.files.read("/var/log/mcp-gateway"))
    assert log == 'mcp-gateway pull exa\nmcp-gateway --config {"exa": {"apiKey": "x"}}\n', log
    await done(sandbox.kill())
    container = builder(None).from_template("devcontainer").beta_dev_container_prebuild("/srv")
    await done(Template.build(container.beta_set_dev_container_start("/srv"), "contained"))
    sandbox = await done(Sandbox.create("contained", timeout=300))
    assert await done(sandbox.files.read("/devcontainer.sh")) == "prepared\n"
    await done(sandbox.kill())
    for name in ["served", "contained", "mcp-gateway", "devcontainer"]:
        await done(Sandbox.delete_snapshot(name))


async def not_yet():
    refused = (e2b.SandboxException, e2b.VolumeException, e2b.SecretException)
    await fails(lambda: Volume.create("data"), refused, "not supported yet")
    await fails(lambda: Secret.list().next_items(), refused, "not supported yet")
    await fails(lambda: Sandbox.create(mcp={"exa": {}}), refused, "not supported yet")
    rule = {"transform": {"headers": {"Authorization": Secret.fill("key")}}}
    network = {"rules": {"api.example.com": [rule]}}
    await fails(lambda: Sandbox.create(network=network), refused, "not supported yet")


def public_methods(sandbox, samples):
    """The names of the methods, as the profiler has them, with those of classes above."""
    classes = [Sandbox, Template, *(type(sample) for sample in samples)]
    classes += [e2b.AsyncCommandInputHandle] if IS_ASYNC else []
    classes += [type(builder(None).from_base_image()), *(type(getattr(sandbox, part)) for part in ["files", "commands", "pty", "git"])]
    found = set()
    for top in classes:
        for level in top.__mro__:
            if not level.__module__.startswith("e2b.") or level.__name__ == "ClientFactory":
                continue
            for name, value in vars(level).items():
                if name.startswith("_") or isinstance(value, property):
                    continue
                function = getattr(value, "__func__", None) or getattr(value, "method", None) or value
                if inspect.isfunction(function) or not isinstance(value, (str, int, dict, type)) and callable(getattr(top, name)):
                    found.add((level.__module__, f"{level.__qualname__}.{name}"))
    return found


async def main():
    sys.setprofile(watch)
    sandbox = await done(Sandbox.create(timeout=600, metadata={"by": "python"}, envs={"GREETING": "hello"}))
    handle = await done(sandbox.commands.run("true", background=True))
    await done(handle.wait())
    kinds = {"on_event": print} if IS_ASYNC else {}
    watcher = await done(sandbox.files.watch_dir("/tmp", **kinds))
    await done(watcher.stop())
    samples = [handle, watcher, Sandbox.list(), Sandbox.list_snapshots()]
    methods = public_methods(sandbox, samples)
    assert len(methods) > 110, len(methods)
    for chapter in [commands, terminals, files, git, lifecycle]:
        await chapter(sandbox)
        print(chapter.__name__)
    for chapter in [building, gateways, not_yet]:
        await chapter()
        print(chapter.__name__)
    assert await done(sandbox.kill())
    assert not await done(Sandbox.kill(sandbox.sandbox_id))
    sys.setprofile(None)
    never = sorted(".".join(method) for method in methods - called)
    assert never == [], never
    print("version", version("e2b"))


asyncio.run(main())
