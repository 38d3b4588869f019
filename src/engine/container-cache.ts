/** All containers of the engine, kept up to date by its events. */
import { mapBounded } from "../lib/map-bounded.ts";
import { unlessAborted } from "../lib/abort.ts";
import { containerFacts, type ContainerFacts, type ContainerRecord } from "./container-record.ts";
import { unlessGone } from "./engine-errors.ts";
import type { DockerEngine } from "./engine.ts";
import type { EngineEvent } from "./event-stream.ts";
import { statusLine } from "./status-line.ts";

/** Events that change a record; health checks and commands in containers cause many others. */
const changes = new Set([
  "create",
  "start",
  "restart",
  "die",
  "stop",
  "oom",
  "pause",
  "unpause",
  "rename",
  "update",
  "destroy",
]);

/** Concurrent inspections, which leaves the engine free for other calls. */
const maxInspects = 8;

export interface ContainerList {
  /** Changes exactly when a container or its status line changes. */
  readonly revision: number;
  /** By name. */
  readonly containers: readonly ContainerRecord[];
}

export interface ContainerCacheOptions {
  engine: DockerEngine;
  /** Unix milliseconds. */
  now: () => number;
  nextRevision: () => number;
  /** Called with the IDs of containers that changed or are gone. */
  onChange: (ids: ReadonlySet<string>) => void;
  /** Called when the engine could not report a container's state. */
  onError: (error: unknown) => void;
}

export class ContainerCache {
  readonly #options: ContainerCacheOptions;
  readonly #records = new Map<string, ContainerRecord>();
  /** Containers with events that have not been inspected yet, by ID, with the time of the first event. */
  readonly #dirty = new Map<string, number>();
  /** Containers that are being inspected because of events, with the time of the first event. */
  readonly #inspecting = new Map<string, number>();
  /** Numbers inspections and removals in order. */
  #sequence = 0;
  /** Per container, the number of its removal or of the last applied inspection: older answers are dropped. */
  readonly #known = new Map<string, number>();
  #openRequests = 0;
  /**
   * Grows when an inspection fails: everything is loaded again then, and failures before that are not reported again.
   */
  #failures = 0;
  /** Resolves with the next answer. */
  #answered = Promise.withResolvers<undefined>();
  #list: ContainerList | undefined;
  #statusUntilMs = -Infinity;

  constructor(options: ContainerCacheOptions) {
    this.#options = options;
  }

  get(id: string): ContainerRecord | undefined {
    const record = this.#records.get(id);
    return record && this.#withCurrentStatus(record, this.#options.now());
  }

  /** Returns the same object until something in it changes. */
  list(): ContainerList {
    const nowMs = this.#options.now();
    if (this.#list !== undefined && nowMs < this.#statusUntilMs) return this.#list;
    const containers = [...this.#records.values()].map((record) => this.#withCurrentStatus(record, nowMs));
    containers.sort((a, b) => (a.name < b.name ? -1 : 1));
    this.#statusUntilMs = containers.reduce(
      (until, { statusUntilMs }) => Math.min(until, statusUntilMs),
      Infinity,
    );
    this.#list = { revision: this.#options.nextRevision(), containers };
    return this.#list;
  }

  #withCurrentStatus(record: ContainerRecord, nowMs: number): ContainerRecord {
    if (nowMs < record.statusUntilMs) return record;
    const current = withStatus(record, nowMs);
    this.#records.set(record.id, current);
    return current;
  }

  /** Records an event of a container. */
  onEvent({ action, id }: EngineEvent): void {
    // Some have details behind a colon, such as `health_status: healthy`.
    if (!changes.has(action) && !action.startsWith("health_status")) return;
    if (action === "destroy") {
      this.#known.set(id, ++this.#sequence);
      this.#dirty.delete(id);
      if (this.#records.delete(id)) this.#publishChange(new Set([id]));
    } else {
      if (!this.#dirty.has(id)) this.#dirty.set(id, performance.now());
      // Handle all events of one chunk of the stream together.
      queueMicrotask(() => this.#refreshDirty());
    }
  }

  /** How long the oldest event has been waiting to be applied, in milliseconds. */
  get lagMs(): number {
    return Math.max(0, performance.now() - this.#behindSinceMs);
  }

  get #behindSinceMs(): number {
    const [firstDirty = Infinity] = this.#dirty.values();
    return Math.min(firstDirty, ...this.#inspecting.values());
  }

  /**
   * Waits until the list reflects the events that arrived before this call; later events do not extend the wait.
   * @param patienceMs the longest wait: the engine does not answer for a container while it is being started
   */
  async untilCaughtUp(patienceMs: number): Promise<void> {
    const askedAtMs = performance.now();
    const signal = AbortSignal.timeout(patienceMs);
    while (this.#behindSinceMs <= askedAtMs && !signal.aborted) {
      await unlessAborted(this.#answered.promise, signal).catch(() => undefined);
    }
  }

  /**
   * Inspects one container now, by ID or name.
   * @returns its state after this call; undefined when there is no such container
   */
  async refresh(id: string, signal?: AbortSignal): Promise<ContainerRecord | undefined> {
    const [answer] = await this.#ask([id], signal);
    const facts = answer?.facts;
    return facts && withStatus(facts, this.#options.now());
  }

  /** Loads everything again, to see changes that were missed. */
  async resync(signal: AbortSignal): Promise<void> {
    const requestNumber = ++this.#sequence;
    using _question = this.#countRequest();
    const list = await this.#options.engine.call(
      "list containers",
      (docker) => docker.listContainers({ all: true }),
      { signal },
    );
    const ids = new Set(list.map(({ Id }) => Id));
    await this.#ask([...ids], signal);
    const unlisted = [...this.#records.keys()].filter((id) => !ids.has(id));
    // A container that was created while the list was on its way has its own event.
    this.#forget(unlisted.filter((id) => (this.#known.get(id) ?? 0) < requestNumber));
  }

  /**
   * One inspection per container at a time: a burst of events causes one more inspection, and a slow one delays no
   * others.
   */
  #refreshDirty(): void {
    for (const [id, sinceMs] of this.#dirty) {
      if (this.#inspecting.size >= maxInspects) return;
      if (this.#inspecting.has(id)) continue;
      this.#dirty.delete(id);
      this.#inspecting.set(id, sinceMs);
      void this.#refreshOne(id);
    }
  }

  async #refreshOne(id: string): Promise<void> {
    const failures = this.#failures;
    try {
      await this.#ask([id]);
    } catch (error) {
      if (failures === this.#failures) {
        this.#failures++;
        this.#dirty.clear();
        this.#options.onError(error);
      }
    } finally {
      this.#inspecting.delete(id);
      this.#answered.resolve(undefined);
      this.#answered = Promise.withResolvers();
      this.#refreshDirty();
    }
  }

  /** Inspects containers and applies the answers that nothing newer has replaced. */
  async #ask(ids: readonly string[], signal?: AbortSignal): Promise<{ facts: ContainerFacts | undefined }[]> {
    using _question = this.#countRequest();
    const answers = await mapBounded(ids, maxInspects, async (id) => {
      const requestNumber = ++this.#sequence;
      const facts = await this.#inspect(id, signal);
      return { id: facts?.id ?? id, requestNumber, facts };
    });
    const news = answers.filter(({ id, requestNumber }) => (this.#known.get(id) ?? 0) < requestNumber);
    for (const { id, requestNumber } of news) this.#known.set(id, requestNumber);
    this.#put(news.flatMap(({ facts }) => (facts === undefined ? [] : [facts])));
    this.#forget(news.filter(({ facts }) => facts === undefined).map(({ id }) => id));
    return answers;
  }

  #countRequest(): Disposable {
    this.#openRequests++;
    return {
      [Symbol.dispose]: () => {
        this.#openRequests--;
        // No older answer can arrive any more.
        if (this.#openRequests === 0) this.#known.clear();
      },
    };
  }

  #inspect(id: string, signal?: AbortSignal): Promise<ContainerFacts | undefined> {
    return unlessGone(
      this.#options.engine.call(
        "inspect a container",
        async (docker) => containerFacts(await docker.getContainer(id).inspect()),
        { signal },
      ),
    );
  }

  #put(all: readonly ContainerFacts[]): void {
    if (all.length === 0) return;
    const nowMs = this.#options.now();
    for (const facts of all) this.#records.set(facts.id, withStatus(facts, nowMs));
    this.#publishChange(new Set(all.map(({ id }) => id)));
  }

  #forget(ids: readonly string[]): void {
    const gone = new Set(ids.filter((id) => this.#records.delete(id)));
    if (gone.size > 0) this.#publishChange(gone);
  }

  #publishChange(ids: ReadonlySet<string>): void {
    this.#list = undefined;
    this.#options.onChange(ids);
  }
}

function withStatus(facts: ContainerFacts, nowMs: number): ContainerRecord {
  const { text, validUntilMs } = statusLine(facts, nowMs);
  return { ...facts, status: text, statusUntilMs: validUntilMs };
}
