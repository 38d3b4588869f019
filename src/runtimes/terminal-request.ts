import type { TerminalSize } from "../lib/terminal.ts";

/** What is to be opened in an app. */
export interface TerminalRequest {
  /** `attach`: what the package gives the app; `shell`: a shell, or `command` in its place. */
  readonly session: "attach" | "shell";
  /** Program and arguments; empty for an interactive shell. */
  readonly command: readonly string[];
  /** Of a compose project; empty for its first. */
  readonly service: string;
  /** Of a shell: pipes, and standard error apart. */
  readonly withoutTerminal?: boolean;
  /** Of the window in which it is shown; absent where there is none, or it is not known yet. */
  readonly size?: TerminalSize;
}
