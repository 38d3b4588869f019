/**
 * The engines' documented fields of the manifests that svc writes: every field that it uses, and no other. `npm run
 * check:engines` asks the engines themselves.
 */
import { Ajv } from "ajv";

type Schema = Readonly<Record<string, unknown>>;

const text: Schema = { type: "string" };
const flag: Schema = { type: "boolean" };
const count: Schema = { type: "integer", minimum: 0 };
const port: Schema = { type: "integer", minimum: 1, maximum: 65_535 };
/** RFC 1123, like names of Kubernetes. */
const name: Schema = { type: "string", pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" };
const absolute: Schema = { type: "string", pattern: "^/" };
const list = (items: Schema, more: Schema = {}): Schema => ({ type: "array", items, ...more });
const mapOf = (values: Schema, key = "^[-._a-zA-Z0-9]{1,253}$"): Schema => ({
  ...{ type: "object", additionalProperties: values },
  propertyNames: { pattern: key },
});
/** Only these fields; those that end in `?` are optional. */
function closed(fields: Readonly<Record<string, Schema>>): Schema {
  const entries = Object.entries(fields).map(([key, schema]) => [key.replace("?", ""), schema] as const);
  const required = Object.keys(fields).filter((key) => !key.endsWith("?"));
  return { type: "object", properties: Object.fromEntries(entries), required, additionalProperties: false };
}

const metadata = closed({ name, labels: mapOf(name, "^[a-z./-]+$") });
const key = closed({ name, key: { type: "string", pattern: "^[-._a-zA-Z0-9]{1,253}$" } });
const probe = {
  ...closed({
    "exec?": closed({ command: list(text, { minItems: 1 }) }),
    "tcpSocket?": closed({ port }),
    "httpGet?": closed({ path: absolute, port }),
    periodSeconds: { ...count, minimum: 1 },
    timeoutSeconds: { ...count, minimum: 1 },
    initialDelaySeconds: count,
    failureThreshold: { ...count, minimum: 1 },
  }),
  oneOf: ["exec", "tcpSocket", "httpGet"].map((kind) => ({ required: [kind] })),
};
const protocol = { enum: ["TCP", "UDP"] };
const container = closed({
  name,
  image: text,
  "command?": list(text),
  "args?": list(text),
  "workingDir?": absolute,
  env: list(
    closed({
      name: text,
      valueFrom: {
        ...closed({ "configMapKeyRef?": key, "secretKeyRef?": key }),
        ...{ minProperties: 1, maxProperties: 1 },
      },
    }),
  ),
  "ports?": list(closed({ containerPort: port, protocol })),
  "resources?": closed({
    limits: closed({
      "memory?": { type: "string", pattern: "^\\d+$" },
      "cpu?": { type: "string", pattern: "^\\d+m$" },
    }),
  }),
  "readinessProbe?": probe,
  "livenessProbe?": probe,
  securityContext: closed({
    "runAsUser?": count,
    "runAsGroup?": count,
    "privileged?": flag,
    "allowPrivilegeEscalation?": flag,
    "capabilities?": closed({ "add?": list(text), "drop?": list(text) }),
    "readOnlyRootFilesystem?": { const: true },
  }),
  "volumeMounts?": list(closed({ name, mountPath: absolute, "subPath?": text, "readOnly?": flag })),
});
const volume = {
  ...closed({
    name,
    "persistentVolumeClaim?": closed({ claimName: name }),
    "configMap?": closed({ name }),
    "secret?": closed({ secretName: name }),
    "hostPath?": closed({ path: absolute }),
    "emptyDir?": closed({ medium: { const: "Memory" }, "sizeLimit?": { type: "string", pattern: "^\\d+$" } }),
  }),
  ...{ minProperties: 2, maxProperties: 2 },
};

const kubernetes: Readonly<Record<string, Schema>> = {
  ConfigMap: closed({
    ...{ apiVersion: { const: "v1" }, kind: text, metadata },
    data: mapOf(text),
  }),
  Secret: closed({
    ...{ apiVersion: { const: "v1" }, kind: text, metadata, type: { const: "Opaque" } },
    stringData: mapOf(text),
  }),
  PersistentVolumeClaim: closed({
    ...{ apiVersion: { const: "v1" }, kind: text, metadata },
    spec: closed({
      accessModes: { const: ["ReadWriteOnce"] },
      resources: closed({ requests: closed({ storage: text }) }),
    }),
  }),
  Service: closed({
    ...{ apiVersion: { const: "v1" }, kind: text },
    metadata: closed({ name: { allOf: [name, { pattern: "^[a-z]" }] }, labels: mapOf(name, "^[a-z./-]+$") }),
    spec: {
      ...closed({
        selector: mapOf(name, "^[a-z./-]+$"),
        "clusterIP?": { const: "None" },
        "ports?": list(closed({ name: { ...name, maxLength: 15 }, protocol, port, targetPort: port }), {
          minItems: 1,
          uniqueItems: true,
        }),
      }),
      // A headless one needs none.
      anyOf: [{ required: ["ports"] }, { required: ["clusterIP"] }],
    },
  }),
  Deployment: closed({
    ...{ apiVersion: { const: "apps/v1" }, kind: text, metadata },
    spec: closed({
      replicas: count,
      selector: closed({ matchLabels: mapOf(name, "^[a-z./-]+$") }),
      "strategy?": closed({ type: { const: "Recreate" } }),
      template: closed({
        metadata: closed({ labels: mapOf(name, "^[a-z./-]+$") }),
        spec: closed({
          terminationGracePeriodSeconds: count,
          "hostNetwork?": flag,
          "hostPID?": flag,
          "hostIPC?": flag,
          "securityContext?": closed({ supplementalGroups: list(count) }),
          containers: list(container, { minItems: 1, maxItems: 1 }),
          "volumes?": list(volume),
        }),
      }),
    }),
  }),
};

const label: Schema = { type: "string", pattern: "^[A-Za-z0-9_]+$" };
const nanoseconds: Schema = { type: "integer", minimum: 0 };
const nomad = closed({
  Job: closed({
    ...{ ID: name, Name: name, Type: { const: "service" }, Datacenters: list(text) },
    TaskGroups: list(
      closed({
        ...{ Name: name, Count: count },
        "Networks?": list(
          closed({
            Mode: { enum: ["bridge", "host"] },
            "ReservedPorts?": list(closed({ Label: label, Value: port, To: port }), { uniqueItems: true }),
          }),
        ),
        "Volumes?": mapOf(closed({ Name: text, Type: { const: "host" }, Source: text, ReadOnly: flag })),
        "Services?": list(
          closed({
            ...{ Name: name, Provider: { enum: ["nomad", "consul"] }, "PortLabel?": label },
            "Checks?": list(
              closed({
                ...{ Type: { enum: ["tcp", "http", "script"] }, "PortLabel?": label, "Path?": absolute },
                ...{ "TaskName?": name, "Command?": text, "Args?": list(text) },
                Interval: { ...nanoseconds, minimum: 1e9 },
                Timeout: { ...nanoseconds, minimum: 1e9 },
              }),
            ),
          }),
        ),
        Tasks: list(
          closed({
            ...{ Name: name, Driver: { const: "docker" }, Config: { type: "object" }, "User?": text },
            Env: { type: "object", additionalProperties: text },
            Templates: list(
              closed({
                ...{ DestPath: text, EmbeddedTmpl: text, LeftDelim: text, RightDelim: text },
                ChangeMode: { enum: ["restart"] },
              }),
            ),
            VolumeMounts: list(closed({ Volume: text, Destination: absolute, ReadOnly: flag })),
            RestartPolicy: closed({
              ...{ Attempts: count, Delay: nanoseconds, Mode: { enum: ["delay", "fail"] } },
              Interval: { ...nanoseconds, minimum: 5e9 },
            }),
            Resources: closed({ CPU: { ...count, minimum: 1 }, MemoryMB: { ...count, minimum: 10 } }),
            ...{ KillSignal: { type: "string", pattern: "^SIG[A-Z0-9]+$" }, KillTimeout: nanoseconds },
          }),
          { minItems: 1 },
        ),
      }),
    ),
  }),
});

const ajv = new Ajv({ strict: false, allErrors: true });

/** The errors in a document of Kubernetes, or in a job of Nomad; empty if there are none. */
export function problemsOf(engine: "kubernetes" | "nomad", document: object): string[] {
  const { kind = "" } = document as { kind?: string };
  const schema = engine === "nomad" ? nomad : kubernetes[kind];
  if (schema === undefined) return [`there is no kind "${kind}"`];
  const validate = ajv.compile(schema);
  if (validate(document)) return [];
  return (validate.errors ?? []).map(({ instancePath, message = "", params }) =>
    `${instancePath} ${message} ${JSON.stringify(params)}`.trim(),
  );
}
