/** The sandboxes that a model may see and create. */
import { isTerminal, parseSandboxId, type SandboxState, TorporError } from '@torpor/protocol';
import type { CreateRequest, SandboxView, Torpor } from '@torpor/sdk';
import { LABEL_KEY, type Limits } from './limits.ts';

const LIVE: readonly SandboxState[] = ['creating', 'running', 'pausing', 'paused', 'resuming'];

/** Creates and forks of one organisation and label, one after the other: each counts what the one before has made. */
const queues = new Map<string, Promise<unknown>>();

export class ScopedSandboxes {
  readonly #torpor: Torpor;
  readonly #limits: Limits;

  constructor(torpor: Torpor, limits: Limits) {
    this.#torpor = torpor;
    this.#limits = limits;
  }

  /** By id or name. A sandbox outside of the scope is not found, like one that does not exist. */
  async find(text: string, signal: AbortSignal): Promise<SandboxView> {
    const id = parseSandboxId(text);
    const found =
      id === undefined
        ? (await this.#torpor.sandboxes.page({ name: text, state: LIVE, signal })).items[0]
        : await this.#torpor.sandboxes.get(id, { signal });
    if (found === undefined || !this.#isVisible(found)) {
      throw new TorporError('not_found', `There is no sandbox "${text}".`, {
        hint: 'list_sandboxes shows the sandboxes that you can use.',
      });
    }
    return found;
  }

  /** A read must not wake a sandbox when the server is read-only. */
  async findForRead(text: string, signal: AbortSignal): Promise<SandboxView> {
    const sandbox = await this.find(text, signal);
    if (!this.#limits.readOnly || sandbox.state === 'running') return sandbox;
    throw new TorporError('conflict', `The sandbox is ${sandbox.state}, and this would have to wake it.`, {
      hint: 'This MCP server is read-only.',
    });
  }

  async list(includeEnded: boolean, signal: AbortSignal): Promise<SandboxView[]> {
    const items: SandboxView[] = [];
    const filter = includeEnded ? {} : { state: LIVE };
    for await (const sandbox of this.#torpor.sandboxes.list({ ...filter, ...this.#metadata(), signal }))
      items.push(sandbox);
    return items;
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<SandboxView> {
    const { network, label } = this.#limits;
    const template = this.#allowedTemplate(request.template);
    return this.whenRoomFor(1, signal, () =>
      this.#torpor.sandboxes.create(
        {
          ...request,
          ...(template === undefined ? {} : { template }),
          ...(network === undefined ? {} : { network }),
          metadata: { [LABEL_KEY]: label },
        },
        { signal },
      ),
    );
  }

  /** Runs `work`, which makes `count` sandboxes, unless they are too many. */
  async whenRoomFor<T>(count: number, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const { maxSandboxes, label, org = '' } = this.#limits;
    if (maxSandboxes === undefined) return work();
    const queue = JSON.stringify([org, label]);
    const turn = (queues.get(queue) ?? Promise.resolve()).then(async () => {
      const used = await this.#countLabelled(signal);
      if (used + count > maxSandboxes) throw tooMany(maxSandboxes, used);
      return work();
    });
    const last = turn
      .catch(() => {})
      .then(() => {
        if (queues.get(queue) === last) queues.delete(queue);
      });
    queues.set(queue, last);
    return turn;
  }

  async #countLabelled(signal: AbortSignal): Promise<number> {
    let count = 0;
    const metadata = { [LABEL_KEY]: this.#limits.label };
    for await (const { state } of this.#torpor.sandboxes.list({ state: LIVE, metadata, signal }))
      if (!isTerminal(state)) count += 1;
    return count;
  }

  #allowedTemplate(wanted: string | undefined): string | undefined {
    const { templates } = this.#limits;
    const template = wanted ?? templates[0];
    if (templates.length === 0 || (template !== undefined && templates.includes(template))) return template;
    throw new TorporError('forbidden', `The template "${template}" is not allowed here.`, {
      hint: `Allowed: ${templates.join(', ')}.`,
    });
  }

  #metadata(): { readonly metadata?: Readonly<Record<string, string>> } {
    const { allSandboxes, label } = this.#limits;
    return allSandboxes ? {} : { metadata: { [LABEL_KEY]: label } };
  }

  #isVisible({ metadata }: SandboxView): boolean {
    return this.#limits.allSandboxes || metadata[LABEL_KEY] === this.#limits.label;
  }
}

function tooMany(limit: number, used: number): TorporError {
  return new TorporError(
    'quota_exceeded',
    `There are ${used} sandboxes, and at most ${limit} are allowed here.`,
    {
      hint: 'Kill one that you do not need any more (kill_sandbox).',
    },
  );
}
