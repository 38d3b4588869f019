/** The published ports of a compose file, and the variables that give their numbers. */
import type { JsonObject, JsonValue } from "../lib/json.ts";
import { listOf, mergedRecord, textOf } from "../runtimes/compose/compose-values.ts";
import {
  publishedPorts,
  readServicePort,
  type PublishedPort,
  type ServicePort,
} from "../runtimes/compose/service-ports.ts";
import { onlyVariable } from "./compose-file.ts";

export interface FoundPort extends PublishedPort {
  /** Name of the variable that gives the number. */
  readonly variable?: string;
}

/** The variables that give host ports. */
export function publishedVariables(documents: readonly JsonObject[]): ReadonlySet<string> {
  return new Set(writtenPorts(documents).map(({ variable }) => variable));
}

/**
 * The host ports of all services.
 * @param documents the files as written
 * @param onUnknown called for ports whose number only the engine chooses
 */
export function foundPorts(
  resolved: JsonObject,
  documents: readonly JsonObject[],
  values: ReadonlyMap<string, string>,
  onUnknown: (service: string, port: ServicePort) => void,
): FoundPort[] {
  const written = writtenPorts(documents);
  return publishedPorts(resolved, onUnknown).map((port): FoundPort => {
    const same = written.filter(
      ({ variable, fallback }) => (values.get(variable) ?? fallback) === `${port.published}`,
    );
    const { variable } = same.find(({ service }) => service === port.service) ?? same[0] ?? {};
    return { ...port, ...(variable !== undefined && { variable }) };
  });
}

interface WrittenPort {
  readonly service: string;
  readonly variable: string;
  readonly fallback: string;
}

function writtenPorts(documents: readonly JsonObject[]): WrittenPort[] {
  return documents.flatMap((document) =>
    Object.entries(mergedRecord(document["services"])).flatMap(([service, value]) =>
      listOf(mergedRecord(value)["ports"]).flatMap((port): WrittenPort[] => {
        const found = onlyVariable(publishedBy(port));
        return found === undefined ? [] : [{ service, variable: found.name, fallback: found.fallback ?? "" }];
      }),
    ),
  );
}

/** The published part, also of text with variables that contain colons. */
function publishedBy(port: JsonValue): string {
  if (typeof port === "object") return readServicePort(port).published;
  const variables: string[] = [];
  const masked = textOf(port).replaceAll(/\$\{[^}]*\}/g, (variable) => {
    variables.push(variable);
    return `@${variables.length - 1}@`;
  });
  return readServicePort(masked).published.replaceAll(/@(\d+)@/g, (_, at) => variables[Number(at)] ?? "");
}
