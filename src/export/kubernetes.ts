/** An app as manifests of Kubernetes (apps/v1, v1): one YAML file of several documents, for `kubectl apply -f`. */
import { basename } from "node:path";
import {
  addressNotes,
  noted,
  plainName,
  secretPlaceholder,
  waitingNote,
  type ExportedApp,
  type Project,
  type Workload,
} from "./workload.ts";
import { yamlText } from "./yaml-text.ts";

const volumeSize = "1Gi";

export function toKubernetes(project: Project): ExportedApp {
  const { name, workloads, networks } = project;
  const volumes = new Map(
    workloads.flatMap((workload) => workload.volumes.map(({ source }) => [source, workload])),
  );
  const documents = [
    ...[...volumes].map(([source, workload]) => claim(workload, source)),
    ...workloads.flatMap((workload) => [
      configMap(workload),
      secret(workload),
      deployment(workload),
      ...(workload.ports.length === 0 ? [] : [service(workload)]),
      ...workload.names.map((each) => nameService(workload, each)),
    ]),
  ].filter((document) => document !== undefined);
  return {
    files: [{ name: `${name}.yaml`, content: documents.map(yamlText).join("---\n") }],
    notes: [
      ...workloads.flatMap((workload) => noted(workload, notesOf(workload))),
      ...(volumes.size > 0 ? [`each volume asks for ${volumeSize}: set what it needs`] : []),
      ...sharedNotes(workloads),
      ...(workloads.some(({ names }) => names.length > 0)
        ? [
            `its services find each other by their names: apply it to a namespace of its own (kubectl apply -n ${name})`,
          ]
        : []),
      ...(networks.length > 1 || networks.some(({ isInternal }) => isInternal)
        ? ["its networks are one there, where each service reaches all: NetworkPolicies would part them"]
        : []),
    ],
  };
}

function notesOf(workload: Workload): string[] {
  const { limits, ports, names, runtime, after } = workload;
  const { user } = runtime;
  return [
    ...(user === undefined || userIds(user) !== undefined
      ? []
      : [
          `it runs as "${user}" here, and a Deployment takes numbers alone: set runAsUser, or it runs as its image says`,
        ]),
    ...(runtime.network === "none"
      ? ["it has no network here; there it has one, unless a NetworkPolicy forbids it"]
      : []),
    ...addressNotes(workload, "within its cluster"),
    ...(limits.openFiles === undefined ? [] : ["its limit of open files is the runtime's of the node there"]),
    ...(ports.length === 0
      ? []
      : ["its ports are reached within the cluster: add an Ingress, or another type of Service"]),
    ...(workload.stop.signal === "SIGTERM"
      ? []
      : [`it is stopped by SIGTERM there, not by ${workload.stop.signal}, unless its image says so`]),
    ...(workload.restart.policy === "always"
      ? []
      : [`a Deployment always starts it again; here its policy is "${workload.restart.policy}"`]),
    ...((runtime.groups ?? []).length > 0 ? ["its further groups are supplementalGroups there"] : []),
    ...after.map((each) => waitingNote(each, "it starts at once")),
    ...names
      .filter((each) => serviceName(each) !== each)
      .map((each) => `its name "${each}" is none there: others find it as ${serviceName(each)}`),
  ];
}

/** A claim of one node is of all that share it. */
function sharedNotes(workloads: readonly Workload[]): string[] {
  const sources = workloads.flatMap(({ volumes }) => [...new Set(volumes.map(({ source }) => source))]);
  const shared = new Set(sources.filter((source, at) => sources.indexOf(source) !== at));
  return [...shared].map(
    (source) =>
      `several services use the claim ${source}: one node runs them all, unless it is ReadWriteMany`,
  );
}

/** `1000` and `1000:1000`. */
function userIds(user: string): { runAsUser: number; runAsGroup?: number } | undefined {
  const [, runAsUser, runAsGroup] = /^(\d+)(?::(\d+))?$/.exec(user) ?? [];
  if (runAsUser === undefined) return undefined;
  return {
    runAsUser: Number(runAsUser),
    ...(runAsGroup !== undefined && { runAsGroup: Number(runAsGroup) }),
  };
}

const labelsOf = ({ name }: Workload): Record<string, string> => ({ "app.kubernetes.io/name": name });

function metadata(workload: Workload, name = workload.name): object {
  return { name, labels: labelsOf(workload) };
}

/** As names of Services are (RFC 1035): a letter first. */
function serviceName(name: string): string {
  const plain = plainName(name);
  return /^[a-z]/.test(plain) ? plain : `app-${plain}`.slice(0, 63);
}

/** Keys have no slashes: files are told apart by their number. */
function filesOf({ files }: Workload, isSecret: boolean): { key: string; path: string; content: string }[] {
  return files.flatMap((file, at) =>
    file.isSecret === isSecret
      ? [
          {
            key: `${at}-${basename(file.path).replaceAll(/[^-._a-zA-Z0-9]/g, "_")}`,
            path: file.path,
            content: file.content,
          },
        ]
      : [],
  );
}

function configMap(workload: Workload): object | undefined {
  const open = Object.entries(workload.env).filter(([key]) => !workload.secretEnv.includes(key));
  const files = filesOf(workload, false).map(({ key, content }) => [key, content]);
  if (open.length + files.length === 0) return undefined;
  const data = Object.fromEntries([...open.map(([key, value]) => [`env.${key}`, value]), ...files]) as object;
  return { apiVersion: "v1", kind: "ConfigMap", metadata: metadata(workload), data };
}

function secret(workload: Workload): object | undefined {
  const files = filesOf(workload, true).map(({ key, content }) => [key, content]);
  const env = workload.secretEnv.map((key) => [`env.${key}`, workload.env[key] ?? secretPlaceholder]);
  if (env.length + files.length === 0) return undefined;
  const stringData = Object.fromEntries([...env, ...files]) as object;
  return { apiVersion: "v1", kind: "Secret", metadata: metadata(workload), type: "Opaque", stringData };
}

function claim(workload: Workload, name: string): object {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: metadata(workload, name),
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: volumeSize } } },
  };
}

function deployment(workload: Workload): object {
  const { name, volumes, inMemory, replicas, stop, runtime } = workload;
  const hostVolumes = runtime.mounts.map(({ source }, at) => ({
    name: `host-${at}`,
    hostPath: { path: source },
  }));
  const handed = [
    ...(filesOf(workload, false).length === 0 ? [] : [{ name: "config", configMap: { name } }]),
    ...(filesOf(workload, true).length === 0 ? [] : [{ name: "secret", secret: { secretName: name } }]),
  ];
  const claims = [...new Map(volumes.map((volume) => [volume.name, volume.source]))].map(
    ([volume, claimName]) => ({
      name: volumeName(volume),
      persistentVolumeClaim: { claimName },
    }),
  );
  const memory = inMemory.map(({ sizeBytes }, at) => ({
    name: `memory-${at}`,
    emptyDir: { medium: "Memory", ...(sizeBytes !== undefined && { sizeLimit: String(sizeBytes) }) },
  }));
  const all = [...claims, ...handed, ...memory, ...hostVolumes];
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: metadata(workload),
    spec: {
      replicas,
      selector: { matchLabels: labelsOf(workload) },
      // A claim of one node cannot be had by two.
      ...(volumes.length > 0 && { strategy: { type: "Recreate" } }),
      template: {
        metadata: { labels: labelsOf(workload) },
        spec: {
          terminationGracePeriodSeconds: Math.ceil(stop.graceMs / 1000),
          ...(runtime.network === "host" && { hostNetwork: true }),
          ...(runtime.pid === "host" && { hostPID: true }),
          ...(runtime.ipc === "host" && { hostIPC: true }),
          ...((runtime.groups ?? []).length > 0 && {
            securityContext: { supplementalGroups: runtime.groups },
          }),
          containers: [container(workload)],
          ...(all.length > 0 && { volumes: all }),
        },
      },
    },
  };
}

function container(workload: Workload): object {
  const { name, image, entrypoint, command, env, secretEnv, ports, limits, volumes, inMemory, runtime } =
    workload;
  const { droppedCapabilities: dropped } = workload;
  const capabilities = {
    ...(runtime.capabilities.length > 0 && { add: runtime.capabilities }),
    ...(dropped.length > 0 && { drop: dropped }),
  };
  const probe = probeOf(workload);
  const bounds = {
    ...(limits.memoryBytes !== undefined && { memory: String(limits.memoryBytes) }),
    ...(limits.cpus !== undefined && { cpu: `${Math.round(limits.cpus * 1000)}m` }),
  };
  const mounts = [
    ...volumes.map(({ name: volume, path, readOnly }) => ({
      name: volumeName(volume),
      mountPath: path,
      ...(readOnly && { readOnly }),
    })),
    ...inMemory.map(({ path }, at) => ({ name: `memory-${at}`, mountPath: path })),
    ...filesOf(workload, false).map(({ key, path }) => ({
      name: "config",
      mountPath: path,
      subPath: key,
      readOnly: true,
    })),
    ...filesOf(workload, true).map(({ key, path }) => ({
      name: "secret",
      mountPath: path,
      subPath: key,
      readOnly: true,
    })),
    ...runtime.mounts.map(({ target, read_only: readOnly }, at) => ({
      name: `host-${at}`,
      mountPath: target,
      ...(readOnly === true && { readOnly }),
    })),
  ];
  return {
    name,
    image,
    // A dollar in brackets would be a variable there.
    ...(entrypoint !== undefined && { command: entrypoint.map(literal) }),
    ...(command.length > 0 && { args: command.map(literal) }),
    ...(runtime.workingDir !== undefined && { workingDir: runtime.workingDir }),
    env: Object.keys(env).map((key) => ({
      name: key,
      valueFrom: {
        [secretEnv.includes(key) ? "secretKeyRef" : "configMapKeyRef"]: { name, key: `env.${key}` },
      },
    })),
    ...(ports.length > 0 && {
      ports: ports.map(({ protocol, inside }) => ({
        containerPort: inside,
        protocol: protocol.toUpperCase(),
      })),
    }),
    ...(Object.keys(bounds).length > 0 && { resources: { limits: bounds } }),
    ...(probe && { readinessProbe: probe, livenessProbe: probe }),
    securityContext: {
      ...(runtime.user !== undefined && userIds(runtime.user)),
      ...(runtime.privileged ? { privileged: true } : { allowPrivilegeEscalation: false }),
      ...(Object.keys(capabilities).length > 0 && { capabilities }),
      ...(workload.isReadOnly && { readOnlyRootFilesystem: true }),
    },
    ...(mounts.length > 0 && { volumeMounts: mounts }),
  };
}

function volumeName(volume: string): string {
  return `volume-${volume}`.slice(0, 63).replace(/-+$/, "");
}

function literal(text: string): string {
  return text.replaceAll("$(", () => "$$(");
}

function probeOf({ health, healthArgv, ports }: Workload): object | undefined {
  if (health === undefined) return undefined;
  const { probe, intervalMs, timeoutMs, startPeriodMs, retries } = health;
  const seconds = (ms: number): number => Math.max(1, Math.ceil(ms / 1000));
  const times = {
    periodSeconds: seconds(intervalMs),
    timeoutSeconds: seconds(timeoutMs),
    initialDelaySeconds: Math.ceil(startPeriodMs / 1000),
    failureThreshold: Math.max(1, retries),
  };
  if (probe.kind === "exec") return { exec: { command: healthArgv }, ...times };
  const port = ports.find(({ name }) => name === probe.port)?.inside;
  if (port === undefined) return undefined;
  return probe.kind === "tcp"
    ? { tcpSocket: { port }, ...times }
    : { httpGet: { path: probe.path, port }, ...times };
}

function service(workload: Workload): object {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadata(workload, serviceName(workload.name)),
    spec: {
      selector: labelsOf(workload),
      ports: workload.ports.map(({ protocol, port, inside }) => ({
        name: `p${port}-${protocol}`,
        protocol: protocol.toUpperCase(),
        port,
        targetPort: inside,
      })),
    },
  };
}

/** What the others of its app find it by, whatever port they want of it. */
function nameService(workload: Workload, name: string): object {
  return {
    apiVersion: "v1",
    kind: "Service",
    metadata: metadata(workload, serviceName(name)),
    spec: { clusterIP: "None", selector: labelsOf(workload) },
  };
}
