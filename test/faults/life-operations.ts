/** Detached operations and reloaded pages in a soak test, with exits of the daemon during both. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { Code, ConnectError } from "@connectrpc/connect";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { BackupService } from "../../gen/svc/v1/backup_pb.ts";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";
import { EventService } from "../../gen/svc/v1/event_pb.ts";
import { OperationService, type Operation } from "../../gen/svc/v1/operation_pb.ts";
import { SessionService } from "../../gen/svc/v1/session_pb.ts";
import type { TestDaemon, UserConnection } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";
import type { LivingApp } from "./life.ts";

export interface LifeOperationsOptions {
  readonly daemon: TestDaemon;
  readonly apps: readonly LivingApp[];
  readonly random: () => number;
  /** The deadline for the daemon to settle, in milliseconds. */
  readonly settleMs: number;
}

type Started = Promise<{ detached?: Operation | undefined }>;

/** Phases of one operation before the daemon exits. */
const mostPhases = 6;
/** The number of an app's archives that are retained for the next verification. */
const keptArchives = 2;
const extraId = "extra";

export class LifeOperations implements Disposable {
  readonly #options: LifeOperationsOptions;
  readonly #pages: readonly Page[];
  /** How often the daemon exited in each phase of each kind, and the operation's outcome. */
  readonly counts = new Map<string, number>();

  constructor(options: LifeOperationsOptions) {
    this.#options = options;
    const connections = new Set<Pick<UserConnection, "client">>([
      options.daemon,
      ...options.apps.map(({ connection }) => connection),
    ]);
    this.#pages = [...connections].map((connection) => new Page(options.daemon, connection));
  }

  acts(): Record<string, () => Promise<void>> {
    const { daemon } = this.#options;
    return {
      "detach work": () => this.#detach(undefined),
      "detach work and end the daemon": () => this.#detach(() => daemon.restart()),
      "detach work and kill the daemon": () =>
        this.#detach(async () => {
          await daemon.kill();
          await daemon.restart();
        }),
      "reload a page": () => this.#pick(this.#pages).load(),
    };
  }

  async #detach(end: (() => Promise<void>) | undefined): Promise<void> {
    const { settleMs } = this.#options;
    const app = this.#pick(this.#options.apps);
    const page = this.#pages.find(({ connection }) => connection === app.connection);
    await eventually(() => this.#requireIdle(app), settleMs);
    const [kind, begin] = this.#pick(Object.entries(this.#kinds(app)));
    // A new daemon may start the app first.
    const started = await eventually(begin, settleMs);
    const id = started.detached?.id ?? "";
    await page?.load();
    if (end !== undefined) {
      const phase = await this.#pass(app, id, Math.floor(this.#options.random() * mostPhases));
      await end();
      await eventually(() => this.#requireIdle(app), settleMs);
      const { state, error } = await this.#operation(app, id);
      this.#count(`${kind} in "${phase}" ${state}`);
      assert.ok(
        state === "SUCCEEDED" ||
          (state === "INTERRUPTED" && /^the daemon /.test(error?.message ?? "")) ||
          isBusy(error),
        `${kind} of ${app.id}: the daemon ended in phase "${phase}", and it is ${state}: ${error?.message ?? ""}`,
      );
    } else {
      await page?.reloadWhileFollowing(id);
      const { state, error } = await this.#operation(app, id);
      assert.ok(
        state === "SUCCEEDED" || isBusy(error),
        `${kind} of ${app.id}: ${state}: ${error?.message ?? ""}`,
      );
      this.#count(`${kind} ${state}`);
    }
    await this.#cleanUp(app);
  }

  #kinds(app: LivingApp): Record<string, () => Started> {
    const { daemon } = this.#options;
    const { id, connection } = app;
    const [apps, backups] = [connection.client(AppService), connection.client(BackupService)];
    /** Later files would be missing from an older archive. */
    const archive = async () => {
      await backups.createBackup({ appId: id });
      const newest = (await backups.listBackups({ appId: id })).backups[0];
      assert.ok(newest);
      const { appId, storage, name } = newest;
      return { appId, storage, name };
    };
    return {
      install: async () => {
        const spec = join(daemon.dir, `${extraId}-package`);
        const manifest = 'migrate: { exec: [sleep, "0.3"] }';
        await writePackage(spec, await freePort(), { id: extraId, manifest });
        return apps.installApp({ spec, detach: true });
      },
      clone: () => apps.cloneApp({ id, detach: true }),
      backup: () => backups.createBackup({ appId: id, detach: true }),
      verify: async () => backups.verifyBackup({ ...(await archive()), deep: true, detach: true }),
      restore: async () => backups.restoreBackup({ ...(await archive()), stopApp: true, detach: true }),
      "restore as new": async () =>
        backups.restoreBackup({ ...(await archive()), asNew: true, newName: `${extraId}-new`, detach: true }),
      ...(app.release !== undefined && {
        upgrade: async () => {
          app.version += 1;
          await app.release?.(app.version);
          return apps.upgradeApp({ id, stopApp: true, detach: true });
        },
      }),
    };
  }

  /** Follows until this many phases have started; resolves with the last one. */
  async #pass({ connection }: LivingApp, id: string, count: number): Promise<string> {
    const phases: string[] = [];
    if (count === 0) return "";
    for await (const { event } of connection.client(OperationService).streamOperation({ id })) {
      if (event.case !== "operation") continue;
      const { phase, state } = event.value;
      if (state !== "RUNNING") return "after its end";
      if (phase !== "" && phases.at(-1) !== phase) phases.push(phase);
      if (phases.length >= count) break;
    }
    return phases.at(-1) ?? "";
  }

  async #operation({ connection }: LivingApp, id: string): Promise<Operation> {
    return connection.client(OperationService).getOperation({ id });
  }

  /** No operation is in progress, and the app has its desired state. */
  async #requireIdle({ id: appId, shouldRun }: LivingApp): Promise<void> {
    const { daemon } = this.#options;
    const { apps } = await daemon.client(AppService).listApps({});
    assert.deepEqual(
      apps
        .filter(({ operation }) => operation !== undefined)
        .map(({ id, operation }) => [id, operation?.kind]),
      [],
      "an app is locked",
    );
    assert.equal(apps.find(({ id }) => id === appId)?.state, shouldRun ? "RUNNING" : "STOPPED", appId);
    const { operations } = await daemon.client(OperationService).listOperations({ state: "RUNNING" });
    assert.deepEqual(
      operations.map(({ id, kind, appId }) => [id, kind, appId]),
      [],
      "an operation is in progress",
    );
  }

  /** Removes what the operation created beside the app. */
  async #cleanUp(app: LivingApp): Promise<void> {
    const { daemon, apps: living } = this.#options;
    const apps = daemon.client(AppService);
    const extras = (await apps.listApps({})).apps.filter(({ id }) => !living.some((each) => each.id === id));
    for (const { id, state, stateReason } of extras) {
      assert.equal(state, "STOPPED", `${id} has a partial result: ${stateReason}`);
      await apps.removeApp({ id });
    }
    const backups = daemon.client(BackupService);
    const { backups: archives } = await backups.listBackups({ appId: app.id });
    for (const { appId, storage, name } of archives.slice(keptArchives))
      await backups.deleteBackup({ appId, storage, name });
  }

  #pick<T>(items: readonly T[]): T {
    const item = items[Math.floor(this.#options.random() * items.length)];
    if (item === undefined) throw new Error("there is nothing to choose from");
    return item;
  }

  #count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  [Symbol.dispose](): void {
    for (const page of this.#pages) page.close();
  }
}

function isBusy(error: Operation["error"]): boolean {
  return error?.detail?.reason === "app_busy";
}

/** A user's page: one session, whose event stream is closed whenever the page is reloaded. */
class Page {
  readonly connection: Pick<UserConnection, "client">;
  readonly #daemon: TestDaemon;
  #token = "";
  /** The daemon that opened the session; the next one does not have it. */
  #pid = 0;
  #over = new AbortController();

  constructor(daemon: TestDaemon, connection: Pick<UserConnection, "client">) {
    this.#daemon = daemon;
    this.connection = connection;
  }

  /** @throws ConnectError if a session of this daemon does not work any more */
  async load(): Promise<void> {
    this.close();
    if (this.#pid !== this.#daemon.pid) await this.#signIn();
    await this.#client(DaemonService).getStatus({});
    await this.#client(AppService).listApps({});
    await this.#client(OperationService).listOperations({ state: "RUNNING" });
    this.#over = new AbortController();
    const { signal } = this.#over;
    void this.#follow(signal).catch(() => undefined);
  }

  /** A page that reconnects receives the lines after its last one. */
  async reloadWhileFollowing(id: string): Promise<void> {
    let seen = 0;
    for (let isOver = false; !isOver;) {
      await this.load();
      for await (const { event } of this.#client(OperationService).streamOperation({ id, after: seen })) {
        if (event.case === "operation") isOver = event.value.state !== "RUNNING";
        if (event.case !== "line") continue;
        assert.ok(seen === 0 || event.value.number === seen + 1, `line ${event.value.number} after ${seen}`);
        seen = event.value.number;
        break;
      }
    }
  }

  close(): void {
    this.#over.abort();
  }

  async #signIn(): Promise<void> {
    const old = this.#token;
    const { pid } = this.#daemon;
    const { code } = await this.connection.client(SessionService).issueSessionCode({});
    const sessions = this.#daemon.tokenClient(SessionService, "connect", code);
    this.#token = (await sessions.openSession({})).token;
    this.#pid = pid;
    if (old === "") return;
    const error = await this.#daemon
      .tokenClient(DaemonService, "connect", old)
      .getStatus({})
      .catch((thrown: unknown) => ConnectError.from(thrown));
    assert.ok(error instanceof ConnectError && error.code === Code.Unauthenticated, "an old session works");
  }

  async #follow(signal: AbortSignal): Promise<void> {
    const events = this.#client(EventService).streamEvents({}, { signal });
    for await (const event of events) assert.ok(event);
  }

  #client<S extends Parameters<TestDaemon["client"]>[0]>(service: S) {
    return this.#daemon.tokenClient<S>(service, "connect", this.#token);
  }
}
