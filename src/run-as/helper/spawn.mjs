/** Starts programs with the environment and directory that their user chose. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { RequestError, hasCode } from "./request-error.mjs";

/**
 * @typedef {object} Program
 * @property {string[]} argv
 * @property {string} cwd
 * @property {Record<string, string>} env added to the helper's own environment, which is the clean base
 * @property {number} [umask] default: 022
 */

/**
 * Starts a program as leader of a new session and waits until it is executed.
 * @param {Program} program
 * @param {import("node:child_process").StdioOptions} stdio
 * @throws RequestError `NO_COMMAND`, `NO_CWD`, `INVALID`; EACCES and other errors of the kernel
 */
export async function spawnSession({ argv, cwd, env, umask = 0o022 }, stdio) {
  const [command, ...args] = argv;
  if (!command) throw new RequestError("INVALID", "the command is empty");
  if (!cwd.startsWith("/")) throw new RequestError("INVALID", `directory "${cwd}" must be absolute`);
  const before = process.umask(umask);
  let child;
  try {
    child = spawn(command, args, { cwd, env: { ...process.env, ...env }, stdio, detached: true });
  } catch (error) {
    throw spawnFailure(error, command, cwd);
  } finally {
    // `spawn()` forks before it returns, so the helper's own work always has the usual umask.
    process.umask(before);
  }
  try {
    await once(child, "spawn");
  } catch (error) {
    throw spawnFailure(error, command, cwd);
  }
  return child;
}

/**
 * @param {unknown} error
 * @param {string} command
 * @param {string} cwd
 */
function spawnFailure(error, command, cwd) {
  if (hasCode(error, "ERR_INVALID_ARG_VALUE")) {
    return new RequestError("INVALID", "arguments and environment must not contain NUL");
  }
  if (!hasCode(error, "ENOENT", "ENOTDIR", "EACCES")) return error;
  // The kernel's error does not tell whether the program or the directory is missing.
  if (!isDirectory(cwd)) return new RequestError("NO_CWD", `directory "${cwd}" cannot be entered`);
  const why = hasCode(error, "EACCES") ? "may not be executed" : "is not installed";
  return new RequestError("NO_COMMAND", `program "${command}" ${why}`);
}

/** @param {string} path */
function isDirectory(path) {
  try {
    return statSync(`${path}/.`).isDirectory();
  } catch {
    return false;
  }
}
