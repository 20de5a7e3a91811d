/**
 * Snapshots at the provider: checkpoints that are not used up by a start. Each is named for its checkpoint, so that
 * one whose making was not seen to end is found again.
 */
import type { CheckpointId } from '@torpor/protocol';
import type { Provider } from './provider.ts';
import type { Records } from '../instance/instance-records.ts';

export class Snapshots {
  private readonly provider: Provider;
  private readonly records: Records;

  constructor(provider: Provider, records: Records) {
    this.provider = provider;
    this.records = records;
  }

  /** Of a sandbox that runs, and goes on. */
  async take(id: CheckpointId, providerId: string, signal: AbortSignal): Promise<string> {
    await this.records.keep(id, { snapshotOf: providerId });
    return this.provider.snapshot(providerId, nameOf(id), signal);
  }

  async isThere(id: CheckpointId, snapshotId: string, signal: AbortSignal): Promise<boolean> {
    return (await this.provider.snapshotsNamed(nameOf(id), signal)).includes(snapshotId);
  }

  /** With whatever has its name; that is nothing when it was never made. */
  async discard(id: CheckpointId, signal: AbortSignal): Promise<void> {
    for (const snapshotId of await this.provider.snapshotsNamed(nameOf(id), signal)) {
      await this.provider.deleteSnapshot(snapshotId, signal);
    }
    await this.records.letGo(id);
  }
}

function nameOf(id: CheckpointId): string {
  return `torpor-${id.slice('ckpt_'.length)}`;
}
