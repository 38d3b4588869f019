/** An app as manifests of Kubernetes (apps/v1, v1): one YAML file of several documents, for `kubectl apply -f`. */
import { basename } from "node:path";
import { addressNotes, secretPlaceholder, type ExportedApp, type Workload } from "./workload.ts";
import { yamlText } from "./yaml-text.ts";

const volumeSize = "1Gi";

export function toKubernetes(workload: Workload): ExportedApp {
  const { name, volumes, limits, ports, runtime } = workload;
  const documents = [
    configMap(workload),
    secret(workload),
    ...volumes.map((volume) => claim(workload, volume)),
    deployment(workload),
    ...(ports.length === 0 ? [] : [service(workload)]),
  ].filter((document) => document !== undefined);
  const { user } = runtime;
  const notes = [
    ...(user === undefined || userIds(user) !== undefined
      ? []
      : [
          `it runs as "${user}" here, and a Deployment takes numbers alone: set runAsUser, or it runs as its image says`,
        ]),
    ...(runtime.network === "none"
      ? ["it has no network here; there it has one, unless a NetworkPolicy forbids it"]
      : []),
    ...addressNotes(workload, "within its cluster"),
    ...(volumes.length > 0 ? [`each volume asks for ${volumeSize}: set what it needs`] : []),
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
  ];
  return {
    files: [{ name: `${name}.yaml`, content: documents.map(yamlText).join("---\n") }],
    notes,
  };
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

function metadata(workload: Workload, suffix = ""): object {
  return { name: `${workload.name}${suffix}`, labels: labelsOf(workload) };
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

function claim(workload: Workload, { name }: { name: string }): object {
  return {
    apiVersion: "v1",
    kind: "PersistentVolumeClaim",
    metadata: metadata(workload, `-${name}`),
    spec: { accessModes: ["ReadWriteOnce"], resources: { requests: { storage: volumeSize } } },
  };
}

function deployment(workload: Workload): object {
  const { name, volumes, replicas, stop, runtime } = workload;
  const hostVolumes = runtime.mounts.map(({ source }, at) => ({
    name: `host-${at}`,
    hostPath: { path: source },
  }));
  const handed = [
    ...(filesOf(workload, false).length === 0 ? [] : [{ name: "config", configMap: { name } }]),
    ...(filesOf(workload, true).length === 0 ? [] : [{ name: "secret", secret: { secretName: name } }]),
  ];
  const claims = volumes.map((volume) => ({
    name: `volume-${volume.name}`,
    persistentVolumeClaim: { claimName: `${name}-${volume.name}` },
  }));
  const all = [...claims, ...handed, ...hostVolumes];
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
  const { name, image, entrypoint, command, env, secretEnv, ports, limits, volumes, runtime } = workload;
  const probe = probeOf(workload);
  const bounds = {
    ...(limits.memoryBytes !== undefined && { memory: String(limits.memoryBytes) }),
    ...(limits.cpus !== undefined && { cpu: `${Math.round(limits.cpus * 1000)}m` }),
  };
  const mounts = [
    ...volumes.map((volume) => ({ name: `volume-${volume.name}`, mountPath: volume.path })),
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
      ...(runtime.capabilities.length > 0 && { capabilities: { add: runtime.capabilities } }),
    },
    ...(mounts.length > 0 && { volumeMounts: mounts }),
  };
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
    metadata: metadata(workload),
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
