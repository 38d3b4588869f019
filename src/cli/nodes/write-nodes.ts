import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { nodeFileOf, type NodeHome, type NodeList } from "./node-file.ts";

export function writeNodes(host: NodeHome, list: NodeList): void {
  const path = nodeFileOf(host);
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const fresh = `${path}.${crypto.randomUUID()}`;
  try {
    writeFileSync(fresh, `${JSON.stringify(list, undefined, 2)}\n`, { mode: 0o600, flag: "wx", flush: true });
    renameSync(fresh, path);
  } catch (error) {
    rmSync(fresh, { force: true });
    throw error;
  }
}
