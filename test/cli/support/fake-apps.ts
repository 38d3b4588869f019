/** Handlers for apps with responses for the command line to show. */
import { create, fromJson } from "@bufbuild/protobuf";
import { timestampFromMs, ValueSchema } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { AppPortSchema, type App, type AppService } from "../../../gen/svc/v1/app_pb.ts";
import { invalidField, notFound, SvcError } from "../../../src/errors.ts";
import { appOf } from "./fake-daemon.ts";

export function fakeApps(
  apps: readonly App[],
  onLeft: () => void,
  appsPerPage: number,
): Partial<ServiceImpl<typeof AppService>> {
  const find = (id: string): App => {
    const app = apps.find((each) => each.id === id);
    if (app === undefined) throw notFound("app", id);
    return app;
  };
  let reads = 0;
  let endSlowStop = (): void => undefined;
  return {
    listApps: (request) => {
      // At most two pages.
      return request.pageToken === "" && apps.length > appsPerPage
        ? { apps: apps.slice(0, appsPerPage), nextPageToken: String(appsPerPage) }
        : { apps: apps.slice(Number(request.pageToken)), nextPageToken: "" };
    },
    getApp: ({ id }) => {
      reads += 1;
      if (reads > 1) endSlowStop();
      return find(id);
    },
    listUpdates: () => ({
      updates: apps.map(({ id, version }) => ({
        ...{ id, version },
        outdatedImages: id === "hello" ? ["example/hello:1", "example/db:2"] : [],
      })),
    }),
    exportApp: ({ id }) => ({
      files: [
        { name: `${find(id).id}.yaml`, content: "kind: Deployment\n" },
        { name: "more.yaml", content: "kind: Service\n" },
      ],
      notes: [],
    }),
    startApp: ({ id }) => {
      if (id === "luckless") {
        throw new SvcError("start_failed", 'app "luckless" did not start: the program exited with code 1');
      }
      if (id === "crowded")
        throw new SvcError(
          "start_failed",
          'app "crowded" did not start: port 8080 is in use by app "hello"; the package fixes the number',
          { payload: { takenPort: 8080 } },
        );
      return appOf({ ...find(id), state: "RUNNING" });
    },
    restartApp: ({ id }) => appOf({ ...find(id), state: "RUNNING" }),
    stopApp: ({ id }) => {
      if (id === "busy") {
        throw new SvcError("app_busy", `app "${id}" is being copied; try again when that has ended`);
      }
      if (id === "heavy") return new Promise((resolve) => (endSlowStop = () => resolve(find(id))));
      if (id === "slow") return new Promise(() => undefined);
      return find(id);
    },
    removeApp: ({ id }) => ({ id: find(id).id, freedBytes: 3n * 1024n ** 3n }),
    getAppDisk: ({ id }) => ({ id: find(id).id, dataBytes: 1024n, totalBytes: 2048n, removableBytes: 2048n }),
    getAppImage: ({ id }) => ({
      services: find(id).runtime === "compose" ? [{ service: "web" }, { service: "worker" }] : [],
    }),
    getAppLogs: ({ id, service, tail, timestamps }) => {
      const offsetSec = id === "idle" ? 1 : 0;
      return {
        lines: [
          { stream: "stdout", text: `one of ${tail ?? 100} \x1b]0;title\x07` },
          { stream: "stderr", text: `two of ${service || find(id).id}` },
          ...(id === "colorful" ? [{ stream: "stdout", text: "\x1b[1;31mred\x1b[2J" }] : []),
        ].map((line, at) => ({
          ...line,
          ...(timestamps && { time: timestampFromMs(Date.UTC(2026, 0, 1, 12, 0, 2 * at + offsetSec)) }),
        })),
      };
    },
    async *streamAppLogs({ id }, { signal }) {
      yield { lines: [{ stream: "stdout", text: `first line of ${find(id).id}` }] };
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      onLeft();
    },
    async *installAppStream({ spec, licenseAck, permissionsAck, settings, settingTexts, name, tag }) {
      yield {
        event: { case: "progress", value: { step: "fetch", message: "main", stepNumber: 1, stepCount: 2 } },
      };
      if (spec === "licensed" && !(licenseAck && permissionsAck)) {
        const asked = "Licensed 1.0.0 ships LICENSE and needs permissions on the host: read it, and";
        throw new SvcError(
          "license_required",
          `${asked} install again with license_ack and permissions_ack true to accept`,
          {
            payload: {
              licenses: licenseAck ? [] : [{ name: "LICENSE", text: "Be kind.\x1b[2J", sha256: "00" }],
              permissions: permissionsAck ? [] : ["The app wants the moon."],
            },
          },
        );
      }
      if (spec === "twice") {
        throw new SvcError("ambiguous", "twice is in two sources", {
          payload: {
            candidates: [
              { spec: "main/twice", source: "main", id: "twice", name: "Twice" },
              { spec: "other/twice", source: "other", id: "twice", name: "Other" },
            ],
          },
        });
      }
      if (spec.endsWith("/svc.yaml"))
        throw invalidField("spec", `"${spec}" is not a package id, git URL or absolute path`);
      if (spec.startsWith("src/"))
        throw invalidField("source", 'no source "src" is configured; sources: main');
      if (["examples", "nowhere", "nginx:1.27"].includes(spec)) throw notFound("package", spec);
      if (spec.endsWith("/nowhere")) {
        throw new SvcError("no_manifest", `${spec} is not a package: it has no svc.yaml`, {
          payload: { url: spec, directory: "" },
        });
      }
      if (spec === "dying") throw new SvcError("unavailable", "the daemon is stopping; try again");
      if (spec === "broken") {
        throw new SvcError("build_failed", "the build of broken failed", {
          payload: { exitCode: 2, lastLines: ["cc: \x1b[31mno such file"] },
        });
      }
      const id = spec.split("/").at(-1) ?? "";
      yield {
        event: {
          case: "app",
          value: appOf({
            ...{ id, name: name || JSON.stringify({ settings, settingTexts }) },
            ...(tag !== "" && { version: tag }),
            ...(["closed", "open"].includes(id) && {
              ...{
                runtime: "docker",
                ports: [create(AppPortSchema, { name: "http", protocol: "tcp", port: 8080 })],
              },
            }),
          }),
        },
      };
    },
    async *upgradeAppStream({ id, version, stopApp }) {
      const { state, origin } = find(id);
      const restarted = state === "RUNNING";
      if (restarted && !stopApp)
        throw new SvcError("app_running", `app "${id}" is running; stop it before upgrading it`);
      yield { event: { case: "progress", value: { step: "fetch", message: "" } } };
      yield {
        event: {
          case: "result",
          value: {
            id,
            upToDate: version === "" && origin?.kind !== "directory",
            from: "1.0.0",
            to: version || "1.0.0",
            restarted,
          },
        },
      };
    },
    async *cloneAppStream({ id, name, shareVolumes }) {
      if (id !== "sharer") find(id);
      else if (!shareVolumes) {
        const words =
          'app "sharer" and its copy would both use the volume \x1b[2J; allow that with share_volumes';
        throw new SvcError("volumes_shared", words);
      }
      yield {
        event: { case: "progress", value: { step: "copy", message: "", doneBytes: 512n, totalBytes: 1024n } },
      };
      yield {
        event: {
          case: "result",
          value: { id: name || `${id}-2`, name: "copy", copiedBytes: 1024n, sourceRunning: true },
        },
      };
    },
    getAppSettings: ({ id }) => ({ ...settings, restartRequired: find(id).restartRequired }),
    updateAppSettings: ({ id, values }) => {
      if (values !== undefined && "wrong" in values)
        throw invalidField("values.wrong", "is not a setting of the package");
      const notes = values?.["port"] === 80 ? ['port 80 ("http") is in use by app "web"'] : [];
      return { ...settings, values: values ?? {}, restartRequired: find(id).state === "RUNNING", notes };
    },
    getDiskReport: () => ({
      apps: [{ id: "hello", name: "Hello", repositoryBytes: 2048n, dataBytes: 1n, totalBytes: 2049n }],
      filesystem: { sizeBytes: 100n, usedBytes: 40n, availableBytes: 40n },
    }),
    listAppPorts: ({ id }) => ({
      ports: [
        { name: "http", protocol: "tcp", port: 8080, addresses: [id === "open" ? "::" : "127.0.0.1"] },
        { name: "game", protocol: "udp", port: 9000, addresses: ["127.0.0.1"] },
      ],
    }),
    getPortReport: () => ({
      apps: [
        { id: "hello", name: "Hello", ports: [{ name: "web", protocol: "tcp", port: 8080 }] },
        { id: "idle", name: "Idle", ports: [{ name: "web", protocol: "tcp", port: 8080 }] },
        {
          id: "slow",
          name: "Slow",
          ports: [
            { name: "web", protocol: "tcp", port: 9090, takenBy: "process 12 (node)" },
            { name: "dns", protocol: "udp", port: 8080 },
          ],
        },
      ],
    }),
    getAppStats: ({ ids }) => ({
      stats: apps
        .filter(
          ({ id, state }) =>
            state === "RUNNING" && id !== "uncounted" && (ids.length === 0 || ids.includes(id)),
        )
        .map(({ id }) => ({ id, cpuPercent: 12.34, memoryBytes: 1024n })),
    }),
    async *streamAppStats() {
      yield { stats: [{ id: "hello", cpuPercent: 1 }] };
      yield { stats: [{ id: "hello", cpuPercent: 2 }] };
    },
    listStacks: () => ({
      stacks: [{ name: "shop", appId: "shop", services: [{ name: "db", state: "running" }] }],
    }),
  };
}

const settings = {
  schema: fromJson(ValueSchema, {
    type: "object",
    properties: {
      port: { type: "integer", default: 8080, description: "Where it listens" },
      greeting: { type: "string", default: "hello" },
      channel: { type: "string" },
      password: { type: "string", writeOnly: true },
      level: { type: "string", enum: ["low", "high"] },
    },
  }),
  values: { port: 8080, greeting: "hi" },
};
