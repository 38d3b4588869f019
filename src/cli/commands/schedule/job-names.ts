/** Generated IDs for jobs. */
import type { JobAction } from "./job-flags.ts";

/** The longest ID that the contract allows. */
const maxLength = 64;
/** Leaves space for a numeric suffix. */
const maxNameLength = 48;

/** A readable ID from what a job does: `hello-restart`, `echo`, `http-example.org`. */
export function jobName({
  type,
  app = "",
  command = "",
  url = "",
}: Pick<JobAction, "type" | "app" | "command" | "url">): string {
  switch (type) {
    case "node_reboot":
      return "reboot";
    case "shell":
      return commandName(command);
    case "http":
      return slug(`http-${/^https?:\/\/(?:[^/?#@]*@)?([^/?#:]*)/.exec(url)?.[1] ?? ""}`, "http");
    default:
      return slug(`${app}-${type.replace(/^app_/, "")}`, type);
  }
}

/** The program of a command line: `A=1 /usr/bin/php x.php` is `php`. */
export function commandName(command: string): string {
  const words = command.trim().split(/\s+/);
  const program = words.find((word) => !/^\w+=/.test(word)) ?? "";
  return slug(program.split("/").at(-1) ?? "", "shell");
}

function slug(text: string, fallback: string): string {
  const made = text.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "");
  return (made === "" ? fallback : made).slice(0, maxNameLength);
}

/** `name`, `name-2`, `name-3`, …: the IDs to try, in this order. */
export function* idsLike(name: string): Generator<string> {
  yield name.slice(0, maxLength);
  for (let count = 2; ; count += 1) {
    const suffix = `-${count}`;
    yield `${name.slice(0, maxLength - suffix.length)}${suffix}`;
  }
}
