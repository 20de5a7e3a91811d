/**
 * Snapshots at the provider: checkpoints that a start does not use up. The name of a snapshot contains the id of its
 * checkpoint, so that a snapshot is found again if the provider's answer was lost.
 */
import type { CheckpointId } from '@torpor/protocol';
import type { InstanceRecords } from '../instance/instance-records.ts';
import type { Provider } from './provider.ts';

export class Snapshots {
  readonly #provider: Provider;
  readonly #records: InstanceRecords;

  constructor(provider: Provider, records: InstanceRecords) {
    this.#provider = provider;
    this.#records = records;
  }

  /** Takes a snapshot of a running sandbox, which continues. */
  async take(id: CheckpointId, providerId: string, signal: AbortSignal): Promise<string> {
    await this.#records.writeCheckpoint(id, { snapshotOf: providerId });
    return this.#provider.snapshot(providerId, nameOf(id), signal);
  }

  async exists(id: CheckpointId, snapshotId: string, signal: AbortSignal): Promise<boolean> {
    return (await this.#provider.snapshotsNamed(nameOf(id), signal)).includes(snapshotId);
  }

  /** Deletes all snapshots with the checkpoint's name. There is none if the snapshot was never taken. */
  async discard(id: CheckpointId, signal: AbortSignal): Promise<void> {
    for (const snapshotId of await this.#provider.snapshotsNamed(nameOf(id), signal)) {
      await this.#provider.deleteSnapshot(snapshotId, signal);
    }
    await this.#records.removeCheckpoint(id);
  }
}

function nameOf(id: CheckpointId): string {
  return `torpor-${id.slice('ckpt_'.length)}`;
}
