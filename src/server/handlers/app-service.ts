/** AppService: one domain call per method. */
import type { ServiceImpl } from "@connectrpc/connect";
import { fromJson } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs, ValueSchema } from "@bufbuild/protobuf/wkt";
import {
  AppSchema,
  CloneAppResponseSchema,
  RepullAppResponseSchema,
  UpgradeAppResponseSchema,
  type AppPlacement,
  type AppService,
  type CloneAppRequest,
  type InstallAppRequest,
  type PlaceAppRequest,
  type RepullAppRequest,
  type UpgradeAppRequest,
} from "../../../gen/svc/v1/app_pb.ts";
import type { ExportAppRequestTo, IssueConsoleTokenRequestSession } from "../../../gen/svc/v1/values.ts";
import type { AppHistory } from "../../apps/records/app-history.ts";
import type { AppUpdate, AppUpdates } from "../../apps/changes/app-updates.ts";
import type { AppParts } from "../../apps/create-apps.ts";
import type { InstallRequest } from "../../apps/changes/install.ts";
import type { UpgradeResult } from "../../apps/changes/upgrade.ts";
import { newOwnerOf, type CloneResult } from "../../apps/changes/clone.ts";
import { viewAdopted } from "../../apps/records/app-view.ts";
import type { SettingsView } from "../../apps/records/app-settings.ts";
import type { Consoles } from "../../console/consoles.ts";
import type { Placement } from "../../runtimes/runnable-app.ts";
import type { LogPart } from "../../logs/log-chunk.ts";
import type { Schedules } from "../../scheduler/schedules.ts";
import { noteChangedNothing, shareName, userOf, type UserContext } from "../rpc/user-context.ts";
import type { ConsoleTokens } from "../../access/tokens/console-tokens.ts";
import { appLogStart, logFields } from "./log-lines.ts";
import type { LongMethods } from "./long-method.ts";
import { progressEvents, workOf } from "./progress-events.ts";
import { setTimeout as wait } from "node:timers/promises";

const defaultPageSize = 1000;
const defaultHistory = 360;

/** Domain objects for installed apps. */
export type InstalledParts = Pick<
  AppParts,
  | "adopter"
  | "cloner"
  | "disks"
  | "exporter"
  | "finder"
  | "installer"
  | "lifecycle"
  | "logs"
  | "operations"
  | "placer"
  | "remover"
  | "reports"
  | "renamer"
  | "repuller"
  | "settings"
  | "upgrader"
  | "views"
>;

export function createAppService(
  apps: InstalledParts,
  history: AppHistory,
  updates: Pick<AppUpdates, "check">,
  consoleTokens: ConsoleTokens<UserContext>,
  schedules: Pick<Schedules, "actingOn">,
  consoles: Consoles,
  long: LongMethods,
): ServiceImpl<typeof AppService> {
  const { finder, views, lifecycle, reports, settings, logs } = apps;
  const install = long.define({
    ...{ kind: "install", output: AppSchema, last: "app" },
    pending: ({ name }: InstallAppRequest) =>
      Promise.resolve({ name, state: "INSTALLING", status: "INSTALLING", health: "none" }),
    work: async (request: InstallAppRequest, user, work) =>
      views.get(await apps.installer.install(installRequest(request), user, work), user),
  });
  const upgrade = long.define({
    ...{ kind: "upgrade", output: UpgradeAppResponseSchema, last: "result" },
    appOf: ({ id }: UpgradeAppRequest) => id,
    work: async ({ id, ...request }: UpgradeAppRequest, user, work) =>
      upgradeResponse(await apps.upgrader.upgrade(await finder.find(id, user), request, user, work)),
  });
  const clone = long.define({
    ...{ kind: "clone", output: CloneAppResponseSchema, last: "result" },
    // The owner of the original must not see or cancel the copy of another user.
    ownedBy: newOwnerOf,
    appOf: ({ id }: CloneAppRequest) => id,
    work: async ({ id, ...request }: CloneAppRequest, user, work) =>
      cloneResponse(await apps.cloner.clone(await finder.find(id, user), request, user, work)),
  });
  const repull = long.define({
    ...{ kind: "repull", output: RepullAppResponseSchema, last: "result" },
    appOf: ({ id }: RepullAppRequest) => id,
    work: async ({ id }: RepullAppRequest, user, work) =>
      apps.repuller.repull(await finder.find(id, user), work),
  });
  const place = long.define({
    ...{ kind: "place", output: AppSchema, last: "app" },
    appOf: ({ id }: PlaceAppRequest) => id,
    pending: ({ id }, user) => views.get(id, user),
    work: async ({ id, placement }: PlaceAppRequest, user, work) => {
      await apps.placer.place(await finder.find(id, user), placementOf(placement), user, work);
      return views.get(id, user);
    },
  });

  return {
    listApps: ({ limit = defaultPageSize, pageToken }, context) =>
      views.list(userOf(context), { limit, pageToken }),

    installApp: install.call,
    installAppStream: install.stream,

    getApp: ({ id }, context) => views.get(id, userOf(context)),

    removeApp: async ({ id }, context) => {
      const user = userOf(context);
      const disabledSchedules = await schedules.actingOn(id, user);
      const app = await finder.any(id, user);
      const freedBytes = await apps.remover.remove(app);
      const kept = app.adopted === null ? {} : { kept: viewAdopted(app.adopted) };
      return { id, freedBytes: BigInt(freedBytes), disabledSchedules, ...kept };
    },

    getAppDisk: async ({ id }, context) =>
      apps.disks.disk(await finder.find(id, userOf(context)), context.signal),

    getAppImage: async ({ id, checkRemote }, context) =>
      reports.image(await finder.find(id, userOf(context)), checkRemote, context.signal),

    repullApp: repull.call,

    listAppPorts: async ({ id }, context) => ({
      ports: await reports.ports(await finder.find(id, userOf(context))),
    }),

    listUpdates: async (_request, context) => {
      const found = await updates.check(userOf(context), context.signal);
      return { updates: found.apps.map(updateMessage), ...(found.svc && { svc: found.svc }) };
    },

    upgradeApp: upgrade.call,
    upgradeAppStream: upgrade.stream,

    cloneApp: clone.call,
    cloneAppStream: clone.stream,

    startApp: async ({ id }, context) => {
      const user = userOf(context);
      if (!(await lifecycle.start(await finder.find(id, user)))) noteChangedNothing(context);
      return views.get(id, user);
    },

    stopApp: async ({ id }, context) => {
      const user = userOf(context);
      if (!(await lifecycle.stop(await finder.any(id, user)))) noteChangedNothing(context);
      return views.get(id, user);
    },

    restartApp: async ({ id }, context) => {
      const user = userOf(context);
      await lifecycle.restart(await finder.find(id, user));
      return views.get(id, user);
    },

    placeApp: place.call,

    scaleApp: async ({ id, replicas }, context) => {
      const user = userOf(context);
      await apps.placer.scale(await finder.find(id, user), replicas);
      return views.get(id, user);
    },

    renameApp: async ({ id, name }, context) => {
      const user = userOf(context);
      await apps.renamer.rename(await finder.find(id, user), name);
      return views.get(id, user);
    },

    cancelAppOperation: async ({ id }, context) => {
      const before = await views.get(id, userOf(context));
      apps.operations.cancel(id);
      return before;
    },

    exportApp: async ({ id, to }, context) => {
      const app = await finder.find(id, userOf(context));
      const { files, notes } = await apps.exporter.export(app, to as ExportAppRequestTo);
      return { files: [...files], notes: [...notes] };
    },

    awaitAppStream: ({ id }, context) =>
      progressEvents(async (onProgress) => {
        const user = userOf(context);
        await lifecycle.waitUntilUp(await finder.find(id, user), workOf(context, onProgress));
        return views.get(id, user);
      }, "app"),

    getAppLogs: async ({ id, timestamps, ...from }, context) => {
      const app = await finder.find(id, userOf(context));
      return logsMessage(await logs.read(app, appLogStart(from), context.signal), timestamps);
    },

    streamAppLogs: async function* ({ id, timestamps, ...from }, context) {
      const app = await finder.find(id, userOf(context));
      for await (const chunk of logs.follow(app, appLogStart(from), context.signal)) {
        yield logsMessage(chunk, timestamps);
      }
    },

    getAppSettings: async ({ id }, context) =>
      settingsMessage(settings.view(await finder.find(id, userOf(context)))),

    updateAppSettings: async ({ id, values = {} }, context) => {
      const user = userOf(context);
      await settings.replace(await finder.find(id, user), values, user, context.signal);
      const app = await finder.find(id, user);
      return { ...settingsMessage(settings.view(app)), notes: await settings.portConflicts(app) };
    },

    attachConsole: (inputs, context) => consoles.attach(inputs, userOf(context), context.signal),

    issueConsoleToken: async ({ appId, session }, context) => {
      const user = userOf(context);
      await finder.any(appId, user);
      const scope = { appId, session: session as IssueConsoleTokenRequestSession };
      const { token, expiresAtMs } = consoleTokens.issue(scope, user);
      return { token, expiresAt: timestampFromMs(expiresAtMs) };
    },

    getDiskReport: (_request, context) => apps.disks.report(userOf(context), context.signal),

    getPortReport: (_request, context) => reports.portReport(userOf(context)),

    getAppStats: async ({ ids }, context) => ({
      stats: await reports.stats(ids, userOf(context), context.signal),
    }),

    getAppStatsHistory: async ({ id, limit = defaultHistory, since, step }, context) => {
      const user = userOf(context);
      const { createdAtMs } = await finder.find(id, user);
      const question = {
        limit,
        ...(since && { sinceMs: timestampMs(since) }),
        ...(step !== undefined && { stepSecs: step }),
      };
      const { samples, intervalSecs } = await history.of(id, question, createdAtMs, {
        share: shareName(user),
        signal: context.signal,
      });
      return { samples: [...samples], intervalSecs };
    },

    streamAppStats: ({ ids, minIntervalSecs }, context) =>
      statsFrames(
        () => reports.stats(ids, userOf(context), context.signal),
        Math.max(1, minIntervalSecs) * 1000,
        context.signal,
      ),

    listStacks: async (_request, context) => ({
      stacks: (await reports.stacks(userOf(context))).map((stack) => ({
        ...stack,
        services: [...stack.services],
      })),
    }),
  };
}

function installRequest(request: InstallAppRequest): InstallRequest {
  const { spec, source, name, branch, tag, licenseAck, permissionsAck } = request;
  const { settings = {}, settingTexts } = request;
  const placement = placementOf(request.placement);
  const origin = { spec, source, name, branch, tag };
  return { ...origin, licenseAck, permissionsAck, settings, settingTexts, placement };
}

/** Null for this host. */
function placementOf(placement: AppPlacement | undefined): Placement | null {
  if (placement?.on !== "swarm") return null;
  return { replicas: placement.replicas ?? 1, ports: placement.ports === "mesh" ? "mesh" : "host" };
}

function updateMessage({ id, version, availableVersion, outdatedImages, problem }: AppUpdate) {
  return {
    ...{ id, version, outdatedImages: [...outdatedImages] },
    ...(availableVersion !== undefined && { availableVersion }),
    ...(problem !== undefined && { problem }),
  };
}

function upgradeResponse({ id, upToDate, from, to, restarted }: UpgradeResult) {
  return { id, upToDate, from, to, restarted };
}

function cloneResponse({ id, name, copiedBytes, sourceRunning, ports }: CloneResult) {
  return { id, name, copiedBytes: BigInt(copiedBytes), sourceRunning, ports };
}

function settingsMessage({ schema, ...view }: SettingsView) {
  // A Value has nested messages, unlike a Struct field, which accepts plain JSON.
  return { schema: fromJson(ValueSchema, schema), ...view };
}

function logsMessage(part: LogPart, timestamps: boolean) {
  return { ...logFields(part, timestamps), missedBytes: BigInt(part.missedBytes) };
}

/** Yields samples until `signal` aborts, at least `intervalMs` apart. */
export async function* statsFrames<S>(
  sample: () => Promise<S>,
  intervalMs: number,
  signal: AbortSignal,
): AsyncGenerator<{ stats: S }> {
  let dueMs = performance.now();
  while (!signal.aborted) {
    const begunMs = performance.now();
    const stats = await sample();
    const tookMs = performance.now() - begunMs;
    // Sampling times vary.
    await rest(dueMs - performance.now(), signal);
    dueMs = performance.now() + intervalMs;
    yield { stats };
    await rest(dueMs - performance.now() - tookMs, signal);
  }
}

async function rest(ms: number, signal: AbortSignal): Promise<void> {
  if (ms > 0) await wait(ms, undefined, { signal });
}
