/**
 * A database in one file. Every change is a line that is synced before the request is answered; reading the lines
 * again gives the same records. A line that a crash cut off was never answered, and is dropped.
 */
import { closeSync, fsyncSync, ftruncateSync, mkdirSync, openSync, readFileSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

export class Store {
  #records = new Map();
  #nextId = 1;
  #file;
  #size = 0;

  constructor(path) {
    mkdirSync(dirname(path), { recursive: true });
    this.#file = openSync(path, 'a+');
    const text = readFileSync(path, 'utf8');
    for (const line of text
      .slice(0, text.lastIndexOf('\n') + 1)
      .split('\n')
      .filter(Boolean)) {
      this.#apply(JSON.parse(line));
      this.#size += Buffer.byteLength(line) + 1;
    }
    ftruncateSync(this.#file, this.#size);
  }

  all() {
    return [...this.#records.values()];
  }

  get(id) {
    return this.#records.get(id);
  }

  put(record) {
    const now = new Date().toISOString();
    const id = record.id ?? this.#nextId;
    return this.#change({ put: { createdAt: now, ...this.#records.get(id), ...record, id, updatedAt: now } })
      .put;
  }

  delete(id) {
    return this.#records.has(id) && this.#change({ delete: id }) !== undefined;
  }

  close() {
    closeSync(this.#file);
  }

  #change(change) {
    const line = Buffer.from(`${JSON.stringify(change)}\n`);
    writeSync(this.#file, line);
    fsyncSync(this.#file);
    this.#size += line.length;
    this.#apply(change);
    return change;
  }

  #apply(change) {
    if (change.put === undefined) {
      this.#records.delete(change.delete);
      return;
    }
    this.#records.set(change.put.id, change.put);
    this.#nextId = Math.max(this.#nextId, change.put.id + 1);
  }
}
