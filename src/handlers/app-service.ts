/** AppService: one domain call per method. */
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { fromJson } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs, ValueSchema } from "@bufbuild/protobuf/wkt";
import type {
  AppPlacement,
  AppService,
  CloneAppRequest,
  InstallAppRequest,
  UpgradeAppRequest,
} from "../../gen/svc/v1/app_pb.ts";
import type { ExportAppRequestTo, IssueConsoleTokenRequestSession } from "../../gen/svc/v1/words.ts";
import type { AppHistory } from "../apps/app-history.ts";
import type { AppUpdate, AppUpdates } from "../apps/app-updates.ts";
import type { Apps } from "../apps/apps.ts";
import type { InstallRequest } from "../apps/install.ts";
import type { OnProgress } from "../apps/progress.ts";
import type { UpgradeResult } from "../apps/upgrade.ts";
import type { CloneResult } from "../apps/clone.ts";
import type { SettingsView } from "../apps/app-settings.ts";
import type { Consoles } from "../console/consoles.ts";
import type { LogChunk, Placement } from "../runtimes/runtime.ts";
import type { Schedules } from "../scheduler/schedules.ts";
import { shareName, userOf, type UserContext } from "../rpc/user-context.ts";
import type { ConsoleTokens } from "../tokens/console-tokens.ts";
import { logLines, logStart } from "./log-lines.ts";
import { progressEvents, progressOf, workOf } from "./progress-events.ts";
import { statsFrames } from "./stats-frames.ts";

const defaultPageSize = 1000;
const defaultHistory = 360;

export function createAppService(
  apps: Apps,
  history: AppHistory,
  updates: Pick<AppUpdates, "look">,
  consoleTokens: ConsoleTokens<UserContext>,
  schedules: Pick<Schedules, "actingOn">,
  consoles: Consoles,
): ServiceImpl<typeof AppService> {
  const install = (request: InstallAppRequest, context: HandlerContext, onProgress?: OnProgress) =>
    apps.install(installRequest(request), userOf(context), workOf(context, onProgress));
  const upgrade = async (
    { id, ...request }: UpgradeAppRequest,
    context: HandlerContext,
    onProgress?: OnProgress,
  ) => upgradeResponse(await apps.upgrade(id, request, userOf(context), workOf(context, onProgress)));
  const clone = async (
    { id, ...request }: CloneAppRequest,
    context: HandlerContext,
    onProgress?: OnProgress,
  ) => cloneResponse(await apps.clone(id, request, userOf(context), workOf(context, onProgress)));

  return {
    listApps: ({ limit = defaultPageSize, pageToken }, context) =>
      apps.list(userOf(context), { limit, pageToken }),

    installApp: install,
    installAppStream: (request, context) =>
      progressEvents((onProgress) => install(request, context, onProgress), "app"),

    getApp: ({ id }, context) => apps.get(id, userOf(context)),

    removeApp: async ({ id }, context) => {
      const disabledSchedules = await schedules.actingOn(id, userOf(context));
      return { id, freedBytes: BigInt(await apps.remove(id, userOf(context))), disabledSchedules };
    },

    getAppDisk: ({ id }, context) => apps.disk(id, userOf(context), context.signal),

    getAppImage: ({ id, checkRemote }, context) =>
      apps.image(id, checkRemote, userOf(context), context.signal),

    repullApp: ({ id }, context) => apps.repull(id, userOf(context), workOf(context)),

    listAppPorts: async ({ id }, context) => ({ ports: await apps.ports(id, userOf(context)) }),

    listUpdates: async (_request, context) => {
      const found = await updates.look(userOf(context), context.signal);
      return { updates: found.apps.map(updateMessage), ...(found.svc && { svc: found.svc }) };
    },

    upgradeApp: upgrade,
    upgradeAppStream: progressOf(upgrade),

    cloneApp: clone,
    cloneAppStream: progressOf(clone),

    startApp: ({ id }, context) => apps.startApp(id, userOf(context)),

    stopApp: ({ id }, context) => apps.stopApp(id, userOf(context)),

    restartApp: ({ id }, context) => apps.restartApp(id, userOf(context)),

    placeApp: ({ id, placement }, context) =>
      apps.placeOn(id, placementOf(placement), userOf(context), workOf(context)),

    scaleApp: ({ id, replicas }, context) => apps.scale(id, replicas, userOf(context)),

    cancelAppOperation: ({ id }, context) => apps.cancelOperation(id, userOf(context)),

    exportApp: async ({ id, to }, context) => {
      const { files, notes } = await apps.export(id, to as ExportAppRequestTo, userOf(context));
      return { files: [...files], notes: [...notes] };
    },

    awaitAppStream: ({ id }, context) =>
      progressEvents((onProgress) => apps.awaitUp(id, userOf(context), workOf(context, onProgress)), "app"),

    getAppLogs: async ({ id, timestamps, ...from }, context) =>
      logsMessage(await apps.logs(id, logStart(from), userOf(context), context.signal), timestamps),

    streamAppLogs: async function* ({ id, timestamps, ...from }, context) {
      for await (const chunk of apps.followLogs(id, logStart(from), userOf(context), context.signal)) {
        yield logsMessage(chunk, timestamps);
      }
    },

    getAppSettings: async ({ id }, context) => settingsMessage(await apps.settings(id, userOf(context))),

    updateAppSettings: async ({ id, values = {} }, context) =>
      settingsMessage(await apps.replaceSettings(id, values, userOf(context))),

    attachConsole: (inputs, context) => consoles.attach(inputs, userOf(context), context.signal),

    issueConsoleToken: async ({ appId, session }, context) => {
      const user = userOf(context);
      await apps.get(appId, user);
      const scope = { appId, session: session as IssueConsoleTokenRequestSession };
      const { token, expiresAtMs } = consoleTokens.issue(scope, user);
      return { token, expiresAt: timestampFromMs(expiresAtMs) };
    },

    getDiskReport: (_request, context) => apps.diskReport(userOf(context), context.signal),

    getPortReport: (_request, context) => apps.portReport(userOf(context)),

    getAppStats: async ({ ids }, context) => ({
      stats: await apps.stats(ids, userOf(context), context.signal),
    }),

    getAppStatsHistory: async ({ id, limit = defaultHistory, since, step }, context) => {
      const user = userOf(context);
      const { createdAtMs } = await apps.record(id, user);
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
        () => apps.stats(ids, userOf(context), context.signal),
        Math.max(1, minIntervalSecs) * 1000,
        context.signal,
      ),

    listStacks: async (_request, context) => ({
      stacks: (await apps.stacks(userOf(context))).map((stack) => ({
        ...stack,
        services: [...stack.services],
      })),
    }),
  };
}

function installRequest(request: InstallAppRequest): InstallRequest {
  const { spec, source, name, branch, tag, licenseAck, permissionsAck, settings = {}, portAuto } = request;
  const placement = placementOf(request.placement);
  return { spec, source, name, branch, tag, licenseAck, permissionsAck, settings, portAuto, placement };
}

/** Null for this machine. */
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
  // A Value holds nested messages, unlike a Struct field, which takes JSON as it is.
  return { schema: fromJson(ValueSchema, schema), ...view };
}

function logsMessage({ lines, truncated, missedBytes }: LogChunk, timestamps: boolean) {
  return { lines: logLines(lines, timestamps), truncated, missedBytes: BigInt(missedBytes) };
}
