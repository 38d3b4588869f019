/** The ports that a stage of a Dockerfile exposes, with the values of its own variables. */

export interface ExposedPort {
  readonly port: number;
  readonly protocol: "tcp" | "udp";
}

export interface StageInstruction {
  readonly word: string;
  readonly rest: string;
}

/** Maximum number of ports in one range. */
const maxRange = 32;
const maxPort = 65_535;
/** Maximum characters of a value: ports are shorter, and values that contain other values could grow without limit. */
const maxValue = 64;

/** @returns the ports, in order, and the arguments of EXPOSE that svc cannot publish */
export function exposedPorts(stage: readonly StageInstruction[]): {
  ports: ExposedPort[];
  others: string[];
} {
  const values = new Map<string, string>();
  const ports = new Map<string, ExposedPort>();
  const others: string[] = [];
  for (const { word, rest } of stage) {
    if (word === "ENV" || word === "ARG") setVariables(word, rest, values);
    if (word !== "EXPOSE") continue;
    for (const text of rest.split(/\s+/).filter((each) => each !== "")) {
      const found = portsOf(expand(text, values));
      if (found === undefined) others.push(text);
      for (const port of found ?? []) ports.set(`${port.port}/${port.protocol}`, port);
    }
  }
  return { ports: [...ports.values()], others };
}

/** Reads `80`, `80/UDP` and `5000-5002/tcp`. */
function portsOf(text: string): ExposedPort[] | undefined {
  const [, from, to = from, named = "tcp"] =
    /^["']?(\d{1,5})(?:-(\d{1,5}))?(?:\/([a-z]+))?["']?$/i.exec(text) ?? [];
  const protocol = named.toLowerCase();
  if (from === undefined || to === undefined || (protocol !== "tcp" && protocol !== "udp")) return undefined;
  const [first, last] = [Number(from), Number(to)];
  if (first < 1 || last > maxPort || last < first || last - first >= maxRange) return undefined;
  return Array.from({ length: last - first + 1 }, (_, at) => ({ port: first + at, protocol }));
}

/** Reads the variables of ENV and ARG: `A=1 B="2"`, and `ENV A 1`. */
export function setVariables(word: string, rest: string, values: Map<string, string>): void {
  if (word === "ENV" && !/^\S*=/.test(rest)) {
    const [name = "", ...words] = rest.split(" ");
    setVariable(name, words.join(" "), values);
    return;
  }
  for (const [, name = "", text = ""] of rest.matchAll(/(?:^|\s)(\w+)=("[^"]*"|'[^']*'|\S*)/g))
    setVariable(name, text.replaceAll(/^(["'])(.*)\1$/g, "$2"), values);
}

function setVariable(name: string, text: string, values: Map<string, string>): void {
  const value = text.length > maxValue ? text : expand(text, values);
  if (value.length > maxValue) values.delete(name);
  else values.set(name, value);
}

/** Unknown variables remain, unless there is a default. */
export function expand(text: string, values: ReadonlyMap<string, string>): string {
  return text.replaceAll(
    /\$(?:(\w+)|\{(\w+)(?::?-([^{}]*))?\})/g,
    (whole, plain: string | undefined, braced: string | undefined, otherwise: string | undefined) =>
      values.get(plain ?? braced ?? "") ?? otherwise ?? whole,
  );
}
