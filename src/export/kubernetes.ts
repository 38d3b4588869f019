/**
 * Exports an app as Kubernetes manifests (apps/v1, v1): one YAML file with several documents, for `kubectl apply -f`.
 */
import { basename } from "node:path";
import {
  addressNotes,
  applying,
  noted,
  plainName,
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
      workload.ports.length === 0 ? undefined : service(workload),
      ...workload.names.map((each) => nameService(workload, each)),
    ]),
  ].filter((document) => document !== undefined);
  return {
    files: [{ name: `${name}.yaml`, content: documents.map(yamlText).join("---\n") }],
    notes: applying(
      workloads.flatMap((workload) => noted(workload, notesOf(workload))),
      volumes.size > 0 && `each volume requests ${volumeSize}; set the size that it needs`,
      sharedNotes(workloads),
      workloads.some(({ names }) => names.length > 0) &&
        `the services find each other by name; apply the file to a separate namespace (kubectl apply -n ${name})`,
      (networks.length > 1 || networks.some(({ isInternal }) => isInternal)) &&
        "the networks become one there, so every service reaches all others; separate them with NetworkPolicies",
    ),
  };
}

function notesOf(workload: Workload): string[] {
  const { limits, ports, names, runtime, after } = workload;
  const { user } = runtime;
  return applying(
    user !== undefined &&
      userIds(user) === undefined &&
      `it runs as "${user}" here, but a Deployment supports only numeric users; set runAsUser, or it runs as the user of its image`,
    runtime.network === "none" &&
      "it has no network here, but it has one there unless a NetworkPolicy prevents it",
    addressNotes(workload, "within its cluster"),
    limits.openFiles !== undefined && "its limit of open files there is that of the node's container runtime",
    ports.length > 0 &&
      "its ports are reachable only within the cluster; add an Ingress, or another type of Service",
    workload.stop.signal !== "SIGTERM" &&
      `it is stopped with SIGTERM there, not with ${workload.stop.signal}, unless its image sets that`,
    workload.restart.policy !== "always" &&
      `it is always restarted by a Deployment, although its restart policy here is "${workload.restart.policy}"`,
    (runtime.groups ?? []).length > 0 && "its additional groups become supplementalGroups there",
    after.map((each) => waitingNote(each, "it starts at once")),
    names
      .filter((each) => serviceName(each) !== each)
      .map((each) => `its name "${each}" is not valid there; others find it as ${serviceName(each)}`),
  );
}

/** Claims that several workloads share, which must run on one node. */
function sharedNotes(workloads: readonly Workload[]): string[] {
  const sources = workloads.flatMap(({ volumes }) => [...new Set(volumes.map(({ source }) => source))]);
  const shared = new Set(sources.filter((source, at) => sources.indexOf(source) !== at));
  return [...shared].map(
    (source) =>
      `several services use the claim ${source}, so they must run on one node, unless it is ReadWriteMany`,
  );
}

/** Parses `1000` and `1000:1000`. */
function userIds(user: string): { runAsUser: number; runAsGroup?: number } | undefined {
  const [, runAsUser, runAsGroup] = /^(\d+)(?::(\d+))?$/.exec(user) ?? [];
  if (runAsUser === undefined) return undefined;
  return {
    runAsUser: Number(runAsUser),
    ...(runAsGroup !== undefined && { runAsGroup: Number(runAsGroup) }),
  };
}

const labelsOf = ({ name }: Workload): Record<string, string> => ({ "app.kubernetes.io/name": name });

/** @param name differs from the workload's name for some resources */
function resource(kind: string, workload: Workload, rest: object, name = workload.name): object {
  const apiVersion = kind === "Deployment" ? "apps/v1" : "v1";
  return { apiVersion, kind, metadata: { name, labels: labelsOf(workload) }, ...rest };
}

/** A valid Service name (RFC 1035), which begins with a letter. */
function serviceName(name: string): string {
  const plain = plainName(name);
  return /^[a-z]/.test(plain) ? plain : `app-${plain}`.slice(0, 63);
}

/** Keys cannot contain slashes, so files get numbers. */
function filesOf({ files }: Workload, isSecret: boolean): (Workload["files"][number] & { key: string })[] {
  return files
    .map((file, at) => ({ ...file, key: `${at}-${basename(file.path).replaceAll(/[^-._a-zA-Z0-9]/g, "_")}` }))
    .filter((file) => file.isSecret === isSecret);
}

/** The secret, or the other, variables and files; `undefined` if there are none. */
function dataOf(workload: Workload, isSecret: boolean): object | undefined {
  const env = Object.entries(workload.env).filter(([key]) => workload.secretEnv.includes(key) === isSecret);
  const files = filesOf(workload, isSecret).map(({ key, content }) => [key, content]);
  if (env.length + files.length === 0) return undefined;
  return Object.fromEntries([...env.map(([key, value]) => [`env.${key}`, value]), ...files]) as object;
}

function configMap(workload: Workload): object | undefined {
  const data = dataOf(workload, false);
  return data && resource("ConfigMap", workload, { data });
}

function secret(workload: Workload): object | undefined {
  const stringData = dataOf(workload, true);
  return stringData && resource("Secret", workload, { type: "Opaque", stringData });
}

function claim(workload: Workload, name: string): object {
  const spec = { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: volumeSize } } };
  return resource("PersistentVolumeClaim", workload, { spec }, name);
}

function deployment(workload: Workload): object {
  const { name, volumes, inMemory, replicas, stop, runtime } = workload;
  const hostVolumes = runtime.mounts.map(({ source }, at) => ({
    name: `host-${at}`,
    hostPath: { path: source },
  }));
  const fileVolumes = [
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
  const all = [...claims, ...fileVolumes, ...memory, ...hostVolumes];
  const pod = {
    terminationGracePeriodSeconds: Math.ceil(stop.graceMs / 1000),
    ...(runtime.network === "host" && { hostNetwork: true }),
    ...(runtime.pid === "host" && { hostPID: true }),
    ...(runtime.ipc === "host" && { hostIPC: true }),
    ...((runtime.groups ?? []).length > 0 && { securityContext: { supplementalGroups: runtime.groups } }),
    containers: [container(workload)],
    ...(all.length > 0 && { volumes: all }),
  };
  const spec = {
    replicas,
    selector: { matchLabels: labelsOf(workload) },
    // Two pods cannot use a claim of one node at the same time.
    ...(volumes.length > 0 && { strategy: { type: "Recreate" } }),
    template: { metadata: { labels: labelsOf(workload) }, spec: pod },
  };
  return resource("Deployment", workload, { spec });
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
    ...[...filesOf(workload, false), ...filesOf(workload, true)].map(({ key, path, isSecret }) => ({
      name: isSecret ? "secret" : "config",
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
    // `$(…)` would be a variable there.
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
  const ports = workload.ports.map(({ protocol, port, inside }) => ({
    name: `p${port}-${protocol}`,
    protocol: protocol.toUpperCase(),
    port,
    targetPort: inside,
  }));
  const spec = { selector: labelsOf(workload), ports };
  return resource("Service", workload, { spec }, serviceName(workload.name));
}

/** A Service that makes the workload reachable by name, on any port. */
function nameService(workload: Workload, name: string): object {
  const spec = { clusterIP: "None", selector: labelsOf(workload) };
  return resource("Service", workload, { spec }, serviceName(name));
}
