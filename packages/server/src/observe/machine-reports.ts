/** What the server reports about its machine. Answers are shared, so that many open pages cost no more than one. */
import { availableParallelism, freemem, loadavg, totalmem } from 'node:os';
import type { Clock, Database, Engine } from '@torpor/engine';
import type { DiskLevel, DoctorReport, MachineCheck, MachineView } from '@torpor/protocol';

/** The checks of the chosen runtime. */
export interface HostInspection {
  /** Quick checks of programs that change from time to time. */
  quick(signal: AbortSignal): Promise<readonly MachineCheck[]>;
  /** Every check. May take seconds. */
  all(signal: AbortSignal): Promise<readonly MachineCheck[]>;
}

interface Inspected {
  readonly engine: Pick<Engine, 'disk'>;
  readonly db: Database;
  readonly clock: Clock;
  readonly stopping: AbortSignal;
  readonly host?: HostInspection;
}

const FINDINGS_MS = 60_000;

export class MachineReports {
  readonly #of: Inspected;
  #findings: { readonly at: number; readonly found: Promise<readonly MachineCheck[]> } | undefined;
  #doctor: Promise<DoctorReport> | undefined;

  constructor(inspected: Inspected) {
    this.#of = inspected;
  }

  async machine(): Promise<MachineView> {
    return {
      at: this.#of.clock.now(),
      cpus: availableParallelism(),
      load: loadavg()[0] ?? 0,
      memoryTotalBytes: totalmem(),
      memoryAvailableBytes: freemem(),
      findings: [...(await this.#recentFindings())],
    };
  }

  /** A run that is under way is joined. */
  doctor(): Promise<DoctorReport> {
    this.#doctor ??= this.#runDoctor().finally(() => {
      this.#doctor = undefined;
    });
    return this.#doctor;
  }

  #recentFindings(): Promise<readonly MachineCheck[]> {
    const { clock, host, stopping } = this.#of;
    const now = clock.monotonic();
    if (host === undefined) return Promise.resolve([]);
    if (this.#findings === undefined || now - this.#findings.at > FINDINGS_MS) {
      // A check that fails to run says nothing about the machine; `doctor` reports it.
      const found = host.quick(stopping).then(
        (checks) => checks.filter(({ fix }) => fix !== null),
        () => [],
      );
      this.#findings = { at: now, found };
    }
    return this.#findings.found;
  }

  async #runDoctor(): Promise<DoctorReport> {
    const { clock, host, stopping } = this.#of;
    const at = clock.now();
    const began = clock.monotonic();
    const own = [await this.#checkDatabase(), this.#checkDisk()];
    const checks = [...own, ...((await host?.all(stopping)) ?? [])];
    return { at, durationMs: Math.round(clock.monotonic() - began), checks };
  }

  async #checkDatabase(): Promise<MachineCheck> {
    const answers = await this.#of.db.query('SELECT 1 AS one').then(
      () => true,
      () => false,
    );
    return answers
      ? { name: 'database', ok: true, detail: 'answers', fix: null }
      : { name: 'database', ok: false, detail: 'does not answer', fix: 'look at its log and at its disk' };
  }

  #checkDisk(): MachineCheck {
    const level = this.#of.engine.disk()?.level ?? 'ok';
    const ok = level === 'ok' || level === 'low';
    const fix = level === 'ok' ? null : 'kill sandboxes, delete checkpoints, or enlarge the disk';
    return { name: 'disk of the checkpoints', ok, detail: DISK[level], fix };
  }
}

/** A total map, so that a new level does not compile without an entry. */
const DISK: Readonly<Record<DiskLevel, string>> = {
  ok: 'has room',
  low: 'is filling up',
  refusing: 'is nearly full; creates, forks and snapshots are refused',
  full: 'is full; only kills and deletions work',
};
