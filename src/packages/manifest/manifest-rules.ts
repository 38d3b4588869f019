/** Rules of a manifest beyond its schema, which relate several parts. */
import { isIP } from "node:net";
import type {
  CommandDocument,
  DockerDocument,
  ManifestDocument,
  MountDocument,
} from "../../../gen/manifest-document.ts";
import { devicePermission, isGranted, type Permission } from "./permissions.ts";
import { durationProblems } from "./duration-rules.ts";
import { placeholdersIn } from "./placeholders.ts";
import { settingsProblems } from "../settings/settings-rules.ts";
import type { RuleProblem, Template } from "./rule-problem.ts";
import type { DocumentPath } from "./yaml-document.ts";

const runtimes = ["process", "docker", "compose", "service"] as const;

/** Every rule that `manifest` breaks. */
export function manifestProblems(manifest: ManifestDocument): RuleProblem[] {
  return [
    ...runtimeProblems(manifest),
    ...nameProblems(manifest),
    ...portProblems(manifest),
    ...addressProblems(manifest),
    ...volumeProblems(manifest),
    ...healthProblems(manifest),
    ...consoleProblems(manifest),
    ...durationProblems(manifest),
    ...placeholderProblems(manifest),
    ...settingsProblems(manifest, templatesOf(manifest)),
    ...permissionProblems(manifest),
  ];
}

function runtimeProblems(manifest: ManifestDocument): RuleProblem[] {
  const [first, ...others] = runtimes.filter((name) => manifest[name] !== undefined);
  if (first === undefined) {
    return [{ path: [], message: `one of the keys ${runtimes.join(", ")} is required` }];
  }
  const problems = others.map((name): RuleProblem => ({
    path: [name],
    message: `"${name}" and "${first}" exclude each other: a package has one runtime`,
  }));
  const { docker, service } = manifest;
  if (service && (service.exec === undefined) === (service.unit === undefined)) {
    problems.push({ path: ["service"], message: `service needs exactly one of "exec" and "unit"` });
  }
  if (docker && (docker.image === undefined) === (docker.build === undefined)) {
    problems.push({ path: ["docker"], message: `docker needs exactly one of "image" and "build"` });
  }
  return problems;
}

function nameProblems(manifest: ManifestDocument): RuleProblem[] {
  return (["ports", "volumes"] as const).flatMap((list) => {
    const seen = new Set<string>();
    return (manifest[list] ?? []).flatMap(({ name }, index): RuleProblem[] => {
      if (!seen.has(name)) {
        seen.add(name);
        return [];
      }
      return [{ path: [list, index, "name"], message: `${list}: the name "${name}" appears twice` }];
    });
  });
}

function portProblems(manifest: ManifestDocument): RuleProblem[] {
  return (manifest.ports ?? []).flatMap((port, index): RuleProblem[] => {
    const path = ["ports", index];
    if ((port.default === undefined) === (port.setting === undefined)) {
      return [{ path, message: `the port "${port.name}" needs exactly one of "default" and "setting"` }];
    }
    if (port.setting === undefined) return [];
    const setting = own(manifest.settings?.properties, port.setting);
    if (setting === undefined) {
      return [
        {
          path: [...path, "setting"],
          message: `the port "${port.name}" refers to an unknown setting "${port.setting}"`,
        },
      ];
    }
    if (setting.type !== "integer") {
      const message = `the setting "${port.setting}" is a port number, so its type must be integer`;
      return [{ path: ["settings", "properties", port.setting], message }];
    }
    return [];
  });
}

/** Only the engine publishes ports: a process listens where its own settings specify. */
function addressProblems(manifest: ManifestDocument): RuleProblem[] {
  const hasEngine = manifest.docker !== undefined || manifest.compose !== undefined;
  return (manifest.ports ?? []).flatMap((port, index): RuleProblem[] => {
    const { name, address, address_setting: setting } = port;
    const path = ["ports", index, address === undefined ? "address_setting" : "address"];
    if (address === undefined && setting === undefined) return [];
    if (!hasEngine) {
      return [{ path, message: `the port "${name}" has an address, which is supported only for containers` }];
    }
    if (address !== undefined && setting !== undefined) {
      return [{ path, message: `the port "${name}" must not set both "address" and "address_setting"` }];
    }
    if (address !== undefined) {
      return isIP(address) > 0 ? [] : [{ path, message: `"${address}" is not an IP address` }];
    }
    const { type, format } = own(manifest.settings?.properties, setting ?? "") ?? {};
    if (type === "string" && (format === "ipv4" || format === "ipv6")) return [];
    const message = `the port "${name}" gets its address from a setting, which must be a string of the format ipv4 or ipv6`;
    return [{ path, message }];
  });
}

function volumeProblems(manifest: ManifestDocument): RuleProblem[] {
  return (manifest.volumes ?? []).flatMap(({ name, path }, index): RuleProblem[] => {
    const where = ["volumes", index, "path"];
    const absolute = path?.startsWith("/") ?? false;
    if (path?.split("/").includes("..")) {
      return [{ path: where, message: `the path "${path}" of the volume "${name}" contains ".."` }];
    }
    if (manifest.docker && !absolute) {
      return [{ path: where, message: `the volume "${name}" needs an absolute path in the container` }];
    }
    if (!manifest.docker && absolute) {
      return [{ path: where, message: `the path of the volume "${name}" must be relative` }];
    }
    return [];
  });
}

function healthProblems(manifest: ManifestDocument): RuleProblem[] {
  const { health } = manifest;
  if (health === undefined) return [];
  const probes = (["http", "tcp", "exec"] as const).filter((probe) => health[probe] !== undefined);
  if (probes.length !== 1) {
    return [{ path: ["health"], message: `health needs exactly one of "http", "tcp" and "exec"` }];
  }
  if (manifest.service && health.exec !== undefined) {
    return [{ path: ["health", "exec"], message: `health of a service needs "http" or "tcp"` }];
  }
  const port = health.http?.port ?? health.tcp?.port;
  if (port === undefined || (manifest.ports ?? []).some(({ name }) => name === port)) return [];
  return [
    { path: ["health", probes[0] ?? "http", "port"], message: `health refers to an unknown port "${port}"` },
  ];
}

function consoleProblems({ service, console }: ManifestDocument): RuleProblem[] {
  if (console === undefined || console === false) return [];
  if (service !== undefined) return [{ path: ["console"], message: "a service has no console" }];
  if (console === true || console.exec === undefined || console.terminal !== true) return [];
  const message = `"terminal" and "exec" exclude each other`;
  return [{ path: ["console", "terminal"], message }];
}

/** Every text of `manifest` with placeholders. */
function templatesOf(manifest: ManifestDocument): Template[] {
  const { process, docker, compose, service, migrate, health, console, backup } = manifest;
  return [
    ...argvTemplates(["process", "exec"], process?.exec),
    ...envTemplates(["process", "env"], process?.env),
    ...commandTemplates(["process", "build"], process?.build),
    ...argvTemplates(["docker", "command"], docker?.command),
    ...envTemplates(["docker", "env"], docker?.env),
    ...envTemplates(["compose", "env"], compose?.env),
    ...argvTemplates(["service", "exec"], service?.exec),
    ...envTemplates(["service", "env"], service?.env),
    ...commandTemplates(["service", "build"], service?.build),
    ...oneCommand(["migrate"], migrate),
    ...oneCommand(["backup", "dump"], backup?.dump),
    ...oneCommand(["backup", "after"], backup?.after),
    ...oneCommand(["backup", "restore"], backup?.restore),
    ...argvTemplates(["health", "exec"], health?.exec),
    ...(health?.http?.path === undefined
      ? []
      : [{ path: ["health", "http", "path"], text: health.http.path }]),
    ...argvTemplates(["console", "exec"], typeof console === "object" ? console.exec : undefined),
  ];
}

function argvTemplates(path: DocumentPath, argv: readonly string[] = []): Template[] {
  return argv.map((text, index) => ({ path: [...path, index], text }));
}

function envTemplates(path: DocumentPath, env: Readonly<Record<string, string>> = {}): Template[] {
  return Object.entries(env).map(([name, text]) => ({ path: [...path, name], text }));
}

function commandTemplates(path: DocumentPath, commands: readonly CommandDocument[] = []): Template[] {
  return commands.flatMap((command, index) => oneCommand([...path, index], command));
}

function oneCommand(path: DocumentPath, command: CommandDocument | undefined): Template[] {
  if (command === undefined) return [];
  return [...argvTemplates([...path, "exec"], command.exec), ...envTemplates([...path, "env"], command.env)];
}

function placeholderProblems(manifest: ManifestDocument): RuleProblem[] {
  const known = new Set([
    ...["id", "name", "repo", "data"],
    ...(manifest.ports ?? []).map(({ name }) => `ports.${name}`),
    ...(manifest.volumes ?? []).map(({ name }) => `volumes.${name}`),
    ...Object.keys(manifest.settings?.properties ?? {}).map((name) => `settings.${name}`),
  ]);
  return templatesOf(manifest).flatMap(({ path, text }) =>
    placeholdersIn(text)
      .filter((name) => !known.has(name))
      .map((name) => ({
        path,
        message: `unknown placeholder \${${name}}; known: ${[...known].join(", ")}`,
      })),
  );
}

function permissionProblems(manifest: ManifestDocument): RuleProblem[] {
  const granted = manifest.permissions ?? [];
  const service: RestrictedKey[] =
    manifest.service?.user === undefined ? [] : [{ key: "user", needs: ["privileged"] }];
  const keys = manifest.docker ? restrictedDockerKeys(manifest.docker) : service;
  const runtime = manifest.docker ? "docker" : "service";
  return keys
    .filter(({ needs }) => !needs.some((permission) => isGranted(granted, permission)))
    .map(({ key, needs }) => ({
      path: [runtime, key],
      message: `${runtime}.${key} needs a permission; add "${needs.join('" or "')}" to permissions`,
    }));
}

/** A key with a value that is allowed only with one of these permissions. */
interface RestrictedKey {
  key: string;
  needs: Permission[];
}

/** Every user may read the host's time zone. */
function isHostClock({ source, read_only: readOnly = false }: MountDocument): boolean {
  return readOnly && ["/etc/localtime", "/etc/timezone"].includes(source);
}

function restrictedDockerKeys(docker: DockerDocument): RestrictedKey[] {
  const keys: [boolean, string, Permission[]][] = [
    [docker.privileged === true, "privileged", ["privileged"]],
    [docker.network === "host", "network", ["host_network"]],
    [docker.pid === "host", "pid", ["host_pid"]],
    [docker.ipc === "host", "ipc", ["host_ipc"]],
    ...(docker.devices ?? []).map((path): [boolean, string, Permission[]] => [
      true,
      "devices",
      [devicePermission(path)],
    ]),
    [(docker.groups ?? []).length > 0, "groups", ["groups"]],
    [(docker.capabilities ?? []).length > 0, "capabilities", ["capabilities"]],
    [(docker.mounts ?? []).some((mount) => !isHostClock(mount)), "mounts", ["host_mounts", "engine_socket"]],
  ];
  return keys.flatMap(([isSet, key, needs]) => (isSet ? [{ key, needs }] : []));
}

function own<T>(record: Readonly<Record<string, T>> | undefined, key: string): T | undefined {
  return record !== undefined && Object.hasOwn(record, key) ? record[key] : undefined;
}
