/** An in-memory host with two containers, one of them an app's. */
import type { ServiceImpl } from "@connectrpc/connect";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { ContainerSchema, type DockerService } from "../../../gen/svc/v1/docker_pb.ts";
import { SvcError, notFound } from "../../../src/errors.ts";

const createdAt = timestampFromDate(new Date("2026-01-01T00:00:00Z"));

function container(fields: MessageInitShape<typeof ContainerSchema>) {
  return create(ContainerSchema, {
    image: "demo:1",
    imageId: `sha256:${"e".repeat(64)}`,
    state: "running",
    status: "Up 2 hours",
    createdAt,
    ...fields,
  });
}

const web = container({
  id: "a".repeat(64),
  name: "web",
  ports: [
    { protocol: "tcp", containerPort: 80, hostPort: 8080, hostAddress: "127.0.0.1" },
    { protocol: "udp", containerPort: 53 },
  ],
  composeProject: "shop",
});
const owned = container({
  id: "b".repeat(64),
  name: "svc-hello-1",
  image: `sha256:${"d".repeat(64)}`,
  appId: "hello",
});
const ended = container({
  id: "c".repeat(64),
  name: "ended \x1b[2J",
  state: "exited",
  status: "Exited (0) 1 day ago",
});

export function fakeDocker(): Partial<ServiceImpl<typeof DockerService>> {
  const find = (name: string) => {
    const found = [web, owned, ended].find((each) => each.name === name || each.id.startsWith(name));
    if (found === undefined) throw notFound("container", name);
    if (found.appId !== undefined) {
      throw new SvcError("owned_by_app", `container "${name}" belongs to the app "hello"`, {
        payload: { appId: "hello" },
      });
    }
    return found;
  };
  return {
    listContainers: ({ all, size }) => ({
      containers: [...(all ? [ended] : []), owned, web].map((each) =>
        size ? { ...each, sizeBytes: 2048n } : each,
      ),
    }),
    listContainerStats: ({ ids }) => ({
      stats:
        ids[0] === "none"
          ? []
          : [{ id: web.id, name: "web", cpuPercent: 12.34, memoryBytes: 1024n, networkSentBytes: 512n }],
    }),
    listImages: () => ({
      images: [
        {
          id: `sha256:${"e".repeat(64)}`,
          tags: ["demo:1"],
          sizeBytes: 1024n,
          createdAt,
          containers: 2,
          svcProtected: true,
          protectedReason: 'the installed app "hello" runs it',
        },
        { id: `sha256:${"f".repeat(64)}`, dangling: true, createdAt },
      ],
    }),
    listVolumes: () => ({ volumes: [{ name: "data", driver: "local", createdAt, containers: 1 }] }),
    listNetworks: () => ({
      networks: [{ id: "1".repeat(64), name: "bridge", driver: "bridge", subnets: ["10.0.0.0/8"] }],
    }),
    getDockerDiskUsage: () => ({
      images: { count: 2, sizeBytes: 3n * 1024n ** 2n },
      containers: { count: 3 },
      volumes: { count: 1 },
      buildCache: {},
    }),
    pruneDocker: ({ target, dryRun, danglingOnly }) => ({
      removed:
        target === "build_cache"
          ? []
          : [{ id: `sha256:${"f".repeat(64)}`, name: danglingOnly ? "" : "old:1", sizeBytes: 2048n }],
      skipped: [{ id: "1", name: "demo:1", reason: 'the installed app "hello" runs it' }],
      freedBytes: target === "build_cache" ? 0n : 2048n,
      dryRun,
    }),
    controlContainer: ({ target, action }) => {
      if (target.case === "composeProject") {
        if (target.value !== "shop") throw notFound("compose project", target.value);
        return {
          controlled: [{ id: web.id, name: "web" }],
          skipped: [{ id: ended.id, name: ended.name, reason: "the container is exited" }],
        };
      }
      const { id, name } = find(target.value ?? "");
      const done = [{ id, name }];
      return action === "unpause"
        ? { skipped: [{ id, name, reason: "the container is running" }] }
        : { controlled: done };
    },
    inspectContainer: ({ container: name }) => ({
      container: find(name),
      command: ["/bin/httpd", "-f"],
      startedAt: createdAt,
      restartPolicy: "always",
      mounts: [{ type: "volume", source: "data", target: "/data", readOnly: true }],
      networks: ["bridge"],
      labels: { a: "b" },
      engine: { Id: "x" },
    }),
    getContainerLogs: ({ container: name, tail, timestamps }) => ({
      lines: [
        {
          stream: "stdout",
          text: `${tail ?? 0} of ${find(name).name} \x1b]0;title\x07`,
          ...(timestamps && { time: createdAt }),
        },
      ],
      truncated: tail === 3,
    }),
    async *streamContainerLogs({ container: name }) {
      yield { lines: [{ stream: "stdout", text: `first of ${find(name).name}` }] };
      yield { lines: [{ stream: "stderr", text: "second" }] };
    },
    async *streamDockerEvents({ types }) {
      yield { time: createdAt, type: types[0] ?? "container", action: "start", id: "1", name: "web" };
      yield { time: createdAt, type: "container", action: "die", id: "2", name: "x \x1b[2J", appId: "hello" };
    },
  };
}
