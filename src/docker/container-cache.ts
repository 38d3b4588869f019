/** All containers of the engine, kept right by its events. */
import { mapBounded } from "../lib/map-bounded.ts";
import { containerFacts, type ContainerFacts, type ContainerRecord } from "./container-record.ts";
import { unlessGone } from "./engine-errors.ts";
import type { DockerEngine } from "./engine.ts";
import type { EngineEvent } from "./event-stream.ts";
import { statusLine } from "./status-line.ts";

/** Those that change what a record tells; checks of health and commands in containers make many others. */
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

/** So many containers are asked about at once: the engine answers others beside. */
const maxInspects = 8;

export interface ContainerList {
  /** Another number whenever a container or its status line is another one, and only then. */
  readonly revision: number;
  /** By name. */
  readonly containers: readonly ContainerRecord[];
}

export interface ContainerCacheOptions {
  engine: DockerEngine;
  /** Unix milliseconds. */
  now: () => number;
  nextRevision: () => number;
  /** Called with the ids of containers that are other ones, or gone. */
  onChange: (ids: ReadonlySet<string>) => void;
  /** Called when the engine could not say what has become of a container. */
  onError: (error: unknown) => void;
}

export class ContainerCache {
  readonly #options: ContainerCacheOptions;
  readonly #records = new Map<string, ContainerRecord>();
  readonly #dirty = new Set<string>();
  /** Questions and ends of containers are numbered as they come. */
  #sequence = 0;
  /** The number of each container's end or last applied answer: an answer to an older question is thrown away. */
  readonly #known = new Map<string, number>();
  #questions = 0;
  #refreshing: Promise<void> | undefined;
  #behindSinceMs = Infinity;
  #list: ContainerList | undefined;
  #statusUntilMs = -Infinity;

  constructor(options: ContainerCacheOptions) {
    this.#options = options;
  }

  get(id: string): ContainerRecord | undefined {
    const record = this.#records.get(id);
    return record && this.#current(record, this.#options.now());
  }

  /** The same object for as long as nothing in it changed. */
  list(): ContainerList {
    const nowMs = this.#options.now();
    if (this.#list !== undefined && nowMs < this.#statusUntilMs) return this.#list;
    const containers = [...this.#records.values()].map((record) => this.#current(record, nowMs));
    containers.sort((a, b) => (a.name < b.name ? -1 : 1));
    this.#statusUntilMs = containers.reduce(
      (until, { statusUntilMs }) => Math.min(until, statusUntilMs),
      Infinity,
    );
    this.#list = { revision: this.#options.nextRevision(), containers };
    return this.#list;
  }

  #current(record: ContainerRecord, nowMs: number): ContainerRecord {
    if (nowMs < record.statusUntilMs) return record;
    const current = withStatus(record, nowMs);
    this.#records.set(record.id, current);
    return current;
  }

  /** Takes note of an event of a container. */
  onEvent({ action, id }: EngineEvent): void {
    // Some say more behind a colon, such as `health_status: healthy`.
    if (!changes.has(action) && !action.startsWith("health_status")) return;
    if (action === "destroy") {
      this.#known.set(id, ++this.#sequence);
      this.#dirty.delete(id);
      if (this.#records.delete(id)) this.#changed(new Set([id]));
    } else {
      this.#dirty.add(id);
      if (this.#behindSinceMs === Infinity) this.#behindSinceMs = performance.now();
      this.#refreshing ??= this.#refreshAll();
    }
  }

  /** For how long an event has been waiting to be seen in the list, in milliseconds. */
  get lagMs(): number {
    return Math.max(0, performance.now() - this.#behindSinceMs);
  }

  /** Waits until all is seen in the list that events have told of so far. */
  async settled(): Promise<void> {
    await this.#refreshing;
  }

  /**
   * Asks for one container now, beside its events, by id or name.
   * @returns what is so after this call; undefined when there is none
   */
  async refresh(id: string, signal?: AbortSignal): Promise<ContainerRecord | undefined> {
    const [answer] = await this.#ask([id], signal);
    const facts = answer?.facts;
    return facts && withStatus(facts, this.#options.now());
  }

  /** Asks for everything anew: what happened unseen is seen after it. */
  async resync(signal: AbortSignal): Promise<void> {
    const asked = ++this.#sequence;
    using _question = this.#question();
    const list = await this.#options.engine.call(
      "list containers",
      (docker) => docker.listContainers({ all: true }),
      { signal },
    );
    const ids = new Set(list.map(({ Id }) => Id));
    await this.#ask([...ids], signal);
    const unlisted = [...this.#records.keys()].filter((id) => !ids.has(id));
    // One that was made while the list was on its way has an event of its own.
    this.#forget(unlisted.filter((id) => (this.#known.get(id) ?? 0) < asked));
  }

  /** One after another, so that a burst of events of one container is one question. */
  async #refreshAll(): Promise<void> {
    try {
      // What comes with the same piece of the stream is one piece of work.
      await Promise.resolve();
      while (this.#dirty.size > 0) {
        const ids = [...this.#dirty];
        this.#dirty.clear();
        this.#behindSinceMs = performance.now();
        await this.#ask(ids);
      }
    } catch (error) {
      this.#options.onError(error);
    } finally {
      this.#refreshing = undefined;
      this.#behindSinceMs = Infinity;
    }
  }

  /** Inspects containers, and remembers what nothing newer is known of. */
  async #ask(ids: readonly string[], signal?: AbortSignal): Promise<{ facts: ContainerFacts | undefined }[]> {
    using _question = this.#question();
    const answers = await mapBounded(ids, maxInspects, async (id) => {
      const asked = ++this.#sequence;
      const facts = await this.#inspect(id, signal);
      return { id: facts?.id ?? id, asked, facts };
    });
    const news = answers.filter(({ id, asked }) => (this.#known.get(id) ?? 0) < asked);
    for (const { id, asked } of news) this.#known.set(id, asked);
    this.#put(news.flatMap(({ facts }) => (facts === undefined ? [] : [facts])));
    this.#forget(news.filter(({ facts }) => facts === undefined).map(({ id }) => id));
    return answers;
  }

  #question(): Disposable {
    this.#questions++;
    return {
      [Symbol.dispose]: () => {
        this.#questions--;
        // Nothing is on its way that could be older.
        if (this.#questions === 0) this.#known.clear();
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
    this.#changed(new Set(all.map(({ id }) => id)));
  }

  #forget(ids: readonly string[]): void {
    const gone = new Set(ids.filter((id) => this.#records.delete(id)));
    if (gone.size > 0) this.#changed(gone);
  }

  #changed(ids: ReadonlySet<string>): void {
    this.#list = undefined;
    this.#options.onChange(ids);
  }
}

function withStatus(facts: ContainerFacts, nowMs: number): ContainerRecord {
  const { text, validUntilMs } = statusLine(facts, nowMs);
  return { ...facts, status: text, statusUntilMs: validUntilMs };
}
