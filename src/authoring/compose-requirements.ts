/** The host access of a resolved compose file, as the daemon judges it. */
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { isInside } from "../lib/paths.ts";
import { mapValues } from "../lib/map-values.ts";
import type { Permission } from "../packages/manifest/permissions.ts";
import type { YamlDocument } from "../packages/manifest/yaml-document.ts";
import { recordOf, textOf } from "../runtimes/compose/compose-values.ts";
import { projectClaims } from "../runtimes/compose/project-claims.ts";
import { buildClaims } from "../runtimes/compose/service-build.ts";
import { wellKnownSockets, type ContainerClaims } from "../runtimes/containers/container-policy.ts";
import { clockFiles } from "../runtimes/containers/host-clock.ts";

export interface ComposeRequirement {
  readonly permission: Permission;
  readonly line: number;
  /** Such as `service "web" runs privileged`. */
  readonly sentence: string;
}

/** @param root the package's directory; its mounts are not host access */
export function composeRequirements(
  resolved: JsonObject,
  root: string,
  lineOf: YamlDocument["lineOf"],
): ComposeRequirement[] {
  const claims = [...projectClaims(withoutVariables(resolved), "package"), ...claimsOfBuilds(resolved)];
  return claims.flatMap(({ subject, requirements, binds }) => {
    const line = lineOf(pathOf(subject));
    const mounts = binds.flatMap(({ source, readOnly }) => {
      if (isInside(root, source) || (readOnly && clockFiles.has(source))) return [];
      const isSocket = wellKnownSockets.some((socket) => isInside(source, socket));
      return [{ permission: isSocket ? "engine_socket" : "host_mounts", what: `mounts ${source}` } as const];
    });
    return [...requirements, ...mounts].map(({ permission, what }) => ({
      permission,
      line,
      sentence: `${subject} ${what}`,
    }));
  });
}

function claimsOfBuilds({ services }: JsonObject): ContainerClaims[] {
  return Object.entries(recordOf(services)).map(([service, parts]) => {
    const network = textOf(recordOf(recordOf(parts)["build"])["network"]);
    return buildClaims({ service, settings: { network } });
  });
}

/** svc creates files for configs and secrets from variables. */
function withoutVariables(document: JsonObject): JsonObject {
  const sections = (["configs", "secrets"] as const).map((section) => [
    section,
    mapValues(recordOf(document[section]), (part): JsonValue => {
      const { environment: _, ...rest } = recordOf(part);
      return rest;
    }),
  ]);
  return { ...document, ...(Object.fromEntries(sections) as JsonObject) };
}

/** Path in the document for the subject of claims, such as `service "web"` or `the build of service "web"`. */
function pathOf(subject: string): string[] {
  const [, kind, name] =
    /^(?:the build of )?(service|volume|network|secret|config) "(.*)"$/.exec(subject) ?? [];
  return kind === undefined || name === undefined ? [] : [`${kind}s`, name];
}
