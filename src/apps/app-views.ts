/**
 * Apps as callers see them, made anew only when something that shows in them changed: a list of a thousand apps costs
 * its making many times what sending it does. What is answered is cacheable.
 */
import { create } from "@bufbuild/protobuf";
import {
  AppSchema,
  ListAppsResponseSchema,
  type App,
  type ListAppsResponse,
} from "../../gen/svc/v1/app_pb.ts";
import { cacheable } from "../lib/cacheable.ts";
import { revisionOf, type AppRuntime, type RunnableApp, type RuntimeStatus } from "../runtimes/runtime.ts";
import type { AppPaths } from "./app-paths.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller, AppRegistry } from "./app-registry.ts";
import type { FoundUpdates } from "./found-updates.ts";
import { viewApp, type AppBackupState } from "./app-view.ts";
import type { Operation } from "./operations.ts";
import { decodePageToken, encodePageToken } from "./page-token.ts";

export interface AppViewsOptions {
  registry: AppRegistry;
  runtimes: readonly AppRuntime[];
  runtimeOf: (app: AppRecord) => AppRuntime;
  runnable: (app: AppRecord) => RunnableApp;
  paths: AppPaths;
  backups: AppBackupStates;
  dueStarts: AppDueStarts;
  updates: Pick<FoundUpdates, "revision" | "of">;
  /** The name of a uid; empty when the host has none. */
  userName: (uid: number) => Promise<string>;
}

export interface ListOptions {
  /** 1 to 1000. */
  limit: number;
  /** Empty for the first page. */
  pageToken: string;
}

/** What is known of the backups of apps: the same object for as long as it is the same. */
export interface AppBackupStates {
  /** Another number whenever one may be another. */
  readonly revision: number;
  of(app: AppRecord): AppBackupState | undefined;
}

/** What the daemon starts by itself, and when, unix milliseconds. */
export interface AppDueStarts {
  /** Another number whenever one may be another. */
  readonly revision: number;
  atMs(id: string): number | undefined;
}

/** A view and all that it was made of; limits and directory follow from the record. */
interface MadeView {
  readonly operation: Operation | undefined;
  readonly status: RuntimeStatus | undefined;
  readonly ownerName: string;
  readonly backups: AppBackupState | undefined;
  readonly dueStartAtMs: number | undefined;
  readonly availableVersion: string | undefined;
  readonly view: App;
}

/** Which apps are on a page. */
interface Selection {
  readonly registryRevision: number;
  readonly backupsRevision: number;
  readonly dueStartsRevision: number;
  readonly updatesRevision: number;
  readonly apps: readonly AppRecord[];
  /** Of these apps, each once. */
  readonly ownerUids: readonly number[];
  readonly nextPageToken: string;
}

/** A page and all that it was made of. */
interface MadePage extends Selection {
  readonly runtimeRevision: number;
  readonly ownerNames: ReadonlyMap<number, string>;
  /** Of each app. */
  readonly statuses: readonly (RuntimeStatus | undefined)[];
  readonly page: ListAppsResponse;
}

/** Pages kept; together with their serialized forms each may take a megabyte. */
const maxPages = 8;

export class AppViews {
  readonly #options: AppViewsOptions;
  /** By record: one that was written is another object. */
  readonly #views = new WeakMap<AppRecord, MadeView>();
  /** By who sees what of the list; the most recently made one last. */
  readonly #pages = new Map<string, MadePage>();

  constructor(options: AppViewsOptions) {
    this.#options = options;
  }

  async view(app: AppRecord): Promise<App> {
    return this.#view(app, await this.#options.userName(app.ownerUid));
  }

  /** A page of the caller's apps, by id. @throws SvcError `invalid_request` for a foreign page token. */
  async list(caller: AppCaller, options: ListOptions): Promise<ListAppsResponse> {
    const key = `${caller.root ? "root" : caller.uid} ${options.limit} ${options.pageToken}`;
    const made = this.#pages.get(key);
    if (made !== undefined && (await this.#isCurrent(made))) return made.page;

    const { runtimes } = this.#options;
    const selection = made !== undefined && this.#hasSameRecords(made) ? made : this.#select(caller, options);
    const { apps, ownerUids, nextPageToken } = selection;
    const ownerNames = await this.#ownerNames(ownerUids);
    const runtimeRevision = revisionOf(runtimes);
    const { statuses, views } = this.#viewsOf(apps, ownerNames, made);
    const page = create(ListAppsResponseSchema, { nextPageToken });
    // They are messages already; `create` would look at each of them again.
    page.apps = views;
    cacheable(page);
    this.#keep(key, { ...selection, runtimeRevision, ownerNames, statuses, page });
    return page;
  }

  #select(caller: AppCaller, { limit, pageToken }: ListOptions): Selection {
    const { registry } = this.#options;
    const registryRevision = registry.revision;
    const backupsRevision = this.#options.backups.revision;
    const dueStartsRevision = this.#options.dueStarts.revision;
    const updatesRevision = this.#options.updates.revision;
    const after = decodePageToken(pageToken);
    const visible = registry.visible(caller);
    const rest = after === "" ? visible : visible.filter((app) => app.id > after);
    const apps = rest.slice(0, limit);
    const last = apps.at(-1);
    const nextPageToken = last === undefined || apps.length === rest.length ? "" : encodePageToken(last.id);
    const ownerUids = [...new Set(apps.map((app) => app.ownerUid))];
    const revisions = { registryRevision, backupsRevision, dueStartsRevision, updatesRevision };
    return { ...revisions, apps, ownerUids, nextPageToken };
  }

  /** @param made the page before: where nothing but statuses can have changed since, they alone are looked at */
  #viewsOf(
    apps: readonly AppRecord[],
    ownerNames: ReadonlyMap<number, string>,
    made: MadePage | undefined,
  ): { statuses: (RuntimeStatus | undefined)[]; views: App[] } {
    const { runtimeOf } = this.#options;
    const isSame =
      made !== undefined && this.#hasSameRecords(made) && hasSameNames(made.ownerNames, ownerNames);
    const before = isSame ? made : undefined;
    const statuses = apps.map((app) => runtimeOf(app).status(app.id));
    const views = apps.map((app, at) => {
      const known = before?.statuses[at] === statuses[at] ? before?.page.apps[at] : undefined;
      return known ?? this.#view(app, ownerNames.get(app.ownerUid) ?? "");
    });
    return { statuses, views };
  }

  #view(app: AppRecord, ownerName: string): App {
    const { registry, runtimeOf, runnable, paths } = this.#options;
    const runtime = runtimeOf(app);
    const operation = registry.operationOf(app.id);
    const status = runtime.status(app.id);
    const backups = this.#options.backups.of(app);
    const dueStartAtMs = this.#options.dueStarts.atMs(app.id);
    const availableVersion = this.#options.updates.of(app);
    const made = this.#views.get(app);
    const isCurrent =
      made?.operation === operation &&
      made?.status === status &&
      made?.backups === backups &&
      made?.dueStartAtMs === dueStartAtMs &&
      made?.availableVersion === availableVersion &&
      made?.ownerName === ownerName;
    if (made !== undefined && isCurrent) return made.view;
    const parts = {
      app,
      operation,
      status,
      backups,
      dueStartAtMs,
      availableVersion,
      limits: runtime.limits(runnable(app)),
      ownerName,
      directory: paths.appDir(app.id),
    };
    const view = cacheable(create(AppSchema, viewApp(parts)));
    this.#views.set(app, { operation, status, backups, dueStartAtMs, availableVersion, ownerName, view });
    return view;
  }

  /** Asked last are the things that change without a wait, so that nothing can change after the answer. */
  async #isCurrent(made: MadePage): Promise<boolean> {
    if (!this.#hasSameApps(made)) return false;
    const namesNow = await this.#ownerNames(made.ownerUids);
    return hasSameNames(made.ownerNames, namesNow) && this.#hasSameApps(made);
  }

  #hasSameApps(made: MadePage): boolean {
    return this.#hasSameRecords(made) && made.runtimeRevision === revisionOf(this.#options.runtimes);
  }

  #hasSameRecords(selection: Selection): boolean {
    const { registryRevision, backupsRevision, dueStartsRevision, updatesRevision } = selection;
    const { registry, backups, dueStarts, updates } = this.#options;
    return (
      registryRevision === registry.revision &&
      backupsRevision === backups.revision &&
      dueStartsRevision === dueStarts.revision &&
      updatesRevision === updates.revision
    );
  }

  async #ownerNames(uids: readonly number[]): Promise<Map<number, string>> {
    const names = await Promise.all(uids.map(this.#options.userName));
    return new Map(uids.map((uid, at) => [uid, names[at] ?? ""]));
  }

  #keep(key: string, made: MadePage): void {
    this.#pages.delete(key);
    this.#pages.set(key, made);
    if (this.#pages.size <= maxPages) return;
    for (const oldest of this.#pages.keys()) {
      this.#pages.delete(oldest);
      break;
    }
  }
}

function hasSameNames(before: ReadonlyMap<number, string>, now: ReadonlyMap<number, string>): boolean {
  for (const [uid, name] of before) if (now.get(uid) !== name) return false;
  return true;
}
