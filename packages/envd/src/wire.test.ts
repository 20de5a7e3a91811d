import { create, fromBinary, fromJson, toBinary, toJson } from '@bufbuild/protobuf';
import { describe, expect, it } from 'vitest';
import {
  EntryInfoSchema,
  EventType,
  Filesystem,
  FilesystemEventSchema,
  FileType,
  GetWatcherEventsRequestSchema,
  MetricsSchema,
  Process,
  ProcessEventSchema,
  SendInputRequestSchema,
  SendSignalRequestSchema,
  Signal,
  StartRequestSchema,
  StreamInputRequestSchema,
  WatchDirRequestSchema,
} from './index.ts';

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString('hex');

describe('the wire', () => {
  it('serves its methods under the paths that clients call', () => {
    const paths = [Process, Filesystem].flatMap((service) =>
      service.methods.map((method) => `/${service.typeName}/${method.name}`),
    );
    expect(paths.toSorted()).toEqual([
      '/filesystem.Filesystem/CreateWatcher',
      '/filesystem.Filesystem/GetWatcherEvents',
      '/filesystem.Filesystem/ListDir',
      '/filesystem.Filesystem/MakeDir',
      '/filesystem.Filesystem/Move',
      '/filesystem.Filesystem/Remove',
      '/filesystem.Filesystem/RemoveWatcher',
      '/filesystem.Filesystem/Stat',
      '/filesystem.Filesystem/WatchDir',
      '/process.Process/CloseStdin',
      '/process.Process/Connect',
      '/process.Process/List',
      '/process.Process/SendInput',
      '/process.Process/SendSignal',
      '/process.Process/Start',
      '/process.Process/StreamInput',
      '/process.Process/Update',
    ]);
  });

  it('reads a start request as clients write it, and distinguishes a refused stdin from an absent one', () => {
    const json = {
      process: { cmd: '/bin/bash', args: ['-l', '-c', 'ls'], envs: { A: 'b' }, cwd: '/tmp' },
      pty: { size: { cols: 80, rows: 24 } },
      tag: 'build',
      stdin: false,
    };
    expect(toJson(StartRequestSchema, fromJson(StartRequestSchema, json))).toEqual(json);
    expect(fromJson(StartRequestSchema, {}).stdin).toBeUndefined();
  });

  it('writes the events of a process as clients read them', () => {
    const event = (value: object) =>
      toJson(ProcessEventSchema, create(ProcessEventSchema, { event: value } as never));
    expect(event({ case: 'start', value: { pid: 42 } })).toEqual({ start: { pid: 42 } });
    const output = { case: 'stdout', value: Buffer.from('hi') };
    expect(event({ case: 'data', value: { output } })).toEqual({ data: { stdout: 'aGk=' } });
    const end = { exitCode: -1, exited: false, status: 'signal: killed', error: 'signal: killed' };
    expect(event({ case: 'end', value: end })).toEqual({
      end: { exitCode: -1, status: 'signal: killed', error: 'signal: killed' },
    });
    expect(event({ case: 'keepalive', value: {} })).toEqual({ keepalive: {} });
  });

  it('numbers fields as the binary form of clients does', () => {
    const end = create(ProcessEventSchema, {
      event: { case: 'end', value: { exitCode: -1, exited: true, status: 's' } },
    });
    expect(hex(toBinary(ProcessEventSchema, end))).toBe('1a07080110011a0173');
    const input = create(SendInputRequestSchema, {
      process: { selector: { case: 'tag', value: 't' } },
      input: { input: { case: 'pty', value: Buffer.from('x') } },
    });
    expect(hex(toBinary(SendInputRequestSchema, input))).toBe('0a03120174' + '1203120178');
    const stream = create(StreamInputRequestSchema, {
      event: { case: 'data', value: { input: { input: { case: 'stdin', value: Buffer.from('x') } } } },
    });
    expect(hex(toBinary(StreamInputRequestSchema, stream))).toBe('120512030a0178');
    const watch = create(WatchDirRequestSchema, {
      path: 'p',
      recursive: true,
      includeEntry: true,
      allowNetworkMounts: true,
    });
    expect(hex(toBinary(WatchDirRequestSchema, watch))).toBe('0a0170100118012001');
    const entry = create(EntryInfoSchema, {
      mode: 1,
      owner: 'o',
      group: 'g',
      symlinkTarget: 's',
      metadata: { k: 'v' },
    });
    expect(hex(toBinary(EntryInfoSchema, entry))).toBe(
      '2801' + '3a016f' + '420167' + '520173' + '5a060a016b120176',
    );
  });

  it('ignores fields that a newer client adds, as such a client ignores ours', () => {
    const bytes = Buffer.from('0a0208012205deadbeef00', 'hex');
    const start = fromBinary(
      ProcessEventSchema,
      toBinary(
        ProcessEventSchema,
        create(ProcessEventSchema, {
          event: { case: 'start', value: { pid: 1, droppedBytes: 5n } },
        }),
      ),
    );
    expect(start.event).toMatchObject({ case: 'start', value: { pid: 1, droppedBytes: 5n } });
    expect(() => fromBinary(SendSignalRequestSchema, bytes)).not.toThrow();
  });

  it('names enums as clients do', () => {
    expect(
      toJson(SendSignalRequestSchema, create(SendSignalRequestSchema, { signal: Signal.SIGKILL })),
    ).toEqual({
      signal: 'SIGNAL_SIGKILL',
    });
    expect([Signal.SIGTERM, Signal.SIGKILL]).toEqual([15, 9]);
    expect([FileType.FILE, FileType.DIRECTORY, FileType.SYMLINK]).toEqual([1, 2, 3]);
    expect([EventType.CREATE, EventType.WRITE, EventType.REMOVE, EventType.RENAME, EventType.CHMOD]).toEqual([
      1, 2, 3, 4, 5,
    ]);
    const event = create(FilesystemEventSchema, { name: 'a', type: EventType.CHMOD });
    expect(toJson(FilesystemEventSchema, event)).toEqual({ name: 'a', type: 'EVENT_TYPE_CHMOD' });
  });

  it('writes sizes as text, times as RFC 3339, and names in camel case', () => {
    const entry = create(EntryInfoSchema, {
      size: 7n,
      type: FileType.FILE,
      modifiedTime: { seconds: 1n, nanos: 500_000_000 },
      symlinkTarget: '/x',
    });
    expect(toJson(EntryInfoSchema, entry)).toEqual({
      type: 'FILE_TYPE_FILE',
      size: '7',
      modifiedTime: '1970-01-01T00:00:01.500Z',
      symlinkTarget: '/x',
    });
    expect(fromJson(GetWatcherEventsRequestSchema, { watcherId: 'w' }).watcherId).toBe('w');
  });

  it('keeps the names of metrics as E2B writes them', () => {
    const names = MetricsSchema.fields.map((field) => field.name);
    expect(names).toEqual(
      expect.arrayContaining(['ts', 'cpu_count', 'cpu_used_pct', 'mem_used', 'mem_total']),
    );
    expect(names).toEqual(expect.arrayContaining(['mem_cache', 'disk_used', 'disk_total']));
  });
});
