/**
 * Apps as callers see them, made anew only when something that shows in them changed: a list of a thousand apps costs
 * its making many times what sending it does. What is answered is frozen, so whoever serializes it may keep the result
 * for as long as it gets the same message.
 */
import { create } from "@bufbuild/protobuf";
import {
  AppSchema,
  ListAppsResponseSchema,
  type App,
  type ListAppsResponse,
} from "../../gen/svc/v1/app_pb.ts";
import { deepFreeze } from "../lib/deep-freeze.ts";
import { revisionOf, type AppRuntime, type RunnableApp, type RuntimeStatus } from "../runtimes/runtime.ts";
import type { AppPaths } from "./app-paths.ts";
import type { AppRecord } from "./app-record.ts";
import type { AppCaller, AppRegistry } from "./app-registry.ts";
import { viewApp } from "./app-view.ts";
import type { Operation } from "./operations.ts";
import { decodePageToken, encodePageToken } from "./page-token.ts";

export interface AppViewsOptions {
  registry: AppRegistry;
  runtimes: readonly AppRuntime[];
  runtimeOf: (app: AppRecord) => AppRuntime;
  runnable: (app: AppRecord) => RunnableApp;
  paths: AppPaths;
  /** The name of a uid; empty when the host has none. */
  userName: (uid: number) => Promise<string>;
}

export interface ListOptions {
  /** 1 to 1000. */
  limit: number;
  /** Empty for the first page. */
  pageToken: string;
}

/** A view and all that it was made of; limits and directory follow from the record. */
interface MadeView {
  readonly operation: Operation | undefined;
  readonly status: RuntimeStatus | undefined;
  readonly ownerName: string;
  readonly view: App;
}

/** A page and all that it was made of. */
interface MadePage {
  readonly registryRevision: number;
  readonly runtimeRevision: number;
  readonly ownerNames: ReadonlyMap<number, string>;
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
  async list(caller: AppCaller, { limit, pageToken }: ListOptions): Promise<ListAppsResponse> {
    const key = `${caller.root ? "root" : caller.uid} ${limit} ${pageToken}`;
    const made = this.#pages.get(key);
    if (made !== undefined && (await this.#isCurrent(made))) return made.page;

    const { registry, runtimes } = this.#options;
    const registryRevision = registry.revision;
    const after = decodePageToken(pageToken);
    const visible = registry.visible(caller);
    const rest = after === "" ? visible : visible.filter((app) => app.id > after);
    const apps = rest.slice(0, limit);
    const ownerNames = await this.#ownerNames(new Set(apps.map((app) => app.ownerUid)));
    const runtimeRevision = revisionOf(runtimes);
    const last = apps.at(-1);
    const page = create(ListAppsResponseSchema, {
      nextPageToken: last === undefined || apps.length === rest.length ? "" : encodePageToken(last.id),
    });
    // They are messages already; `create` would look at each of them again.
    page.apps = apps.map((app) => this.#view(app, ownerNames.get(app.ownerUid) ?? ""));
    Object.freeze(page.apps);
    this.#keep(key, { registryRevision, runtimeRevision, ownerNames, page: Object.freeze(page) });
    return page;
  }

  #view(app: AppRecord, ownerName: string): App {
    const { registry, runtimeOf, runnable, paths } = this.#options;
    const runtime = runtimeOf(app);
    const operation = registry.operationOf(app.id);
    const status = runtime.status(app.id);
    const made = this.#views.get(app);
    const isCurrent =
      made?.operation === operation && made?.status === status && made?.ownerName === ownerName;
    if (made !== undefined && isCurrent) return made.view;
    const parts = {
      app,
      operation,
      status,
      limits: runtime.limits(runnable(app)),
      ownerName,
      directory: paths.appDir(app.id),
    };
    const view = deepFreeze(create(AppSchema, viewApp(parts)));
    this.#views.set(app, { operation, status, ownerName, view });
    return view;
  }

  /** Asked last are the things that change without a wait, so that nothing can change after the answer. */
  async #isCurrent(made: MadePage): Promise<boolean> {
    if (!this.#hasSameApps(made)) return false;
    const namesNow = await this.#ownerNames(made.ownerNames.keys());
    for (const [uid, name] of made.ownerNames) if (namesNow.get(uid) !== name) return false;
    return this.#hasSameApps(made);
  }

  #hasSameApps({ registryRevision, runtimeRevision }: MadePage): boolean {
    const { registry, runtimes } = this.#options;
    return registryRevision === registry.revision && runtimeRevision === revisionOf(runtimes);
  }

  async #ownerNames(uids: Iterable<number>): Promise<Map<number, string>> {
    const asked = [...uids];
    const names = await Promise.all(asked.map(this.#options.userName));
    return new Map(asked.map((uid, at) => [uid, names[at] ?? ""]));
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
