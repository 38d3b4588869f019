import { useSignal, type Signal } from "@preact/signals";
import type { App } from "../../../gen/svc/v1/app_pb.ts";
import { useAction } from "../action.ts";
import { schemeOf } from "../../lib/web-port.ts";
import type { Api } from "../api.ts";
import { adoptedItems, reasonOf, shownState } from "../app-state.ts";
import type { NodeView } from "../node-view.ts";
import { useLive } from "../live.ts";
import { Facts } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { Heading } from "../parts/heading.tsx";
import { ExternalLink } from "../parts/links.tsx";
import { RunningOperations } from "../parts/running-operations.tsx";
import { State } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { When } from "../parts/when.tsx";
import { partsOf } from "../names.ts";
import { plainLine, plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { lazily } from "../parts/lazily.tsx";
import { LogView } from "./log.tsx";
import { SettingsView } from "./settings.tsx";

const AppDiskView = lazily(() => import("./app-disk.tsx"), "AppDiskView");
const CancelOperation = lazily(() => import("./cancel-operation.tsx"), "CancelOperation");
const TasksView = lazily(() => import("./tasks.tsx"), "TasksView");
const ManageView = lazily(() => import("./manage.tsx"), "ManageView");

const AppHistory = lazily(() => import("./history.tsx"), "AppHistory");
const TerminalView = lazily(() => import("./terminal.tsx"), "TerminalView");

export function AppView({ api, node, id }: { api: Api; node: NodeView; id: string }) {
  const app = node.apps.value?.get(id);
  const terminal = useSignal<Session | undefined>(undefined);
  if (app === undefined) {
    const isKnown = node.apps.value !== undefined;
    return (
      <>
        <Heading title={plainText(id)} />
        <p>{isKnown ? texts.app.missing : texts.loading}</p>
        <a href={pathTo("apps")}>{texts.app.back}</a>
      </>
    );
  }
  // Operations in the list are shown there, with their steps.
  const isListed = node.operations.running.value.some(({ appId }) => appId === id);
  return (
    <>
      <a class="back" href={pathTo("apps")}>
        {texts.app.back}
      </a>
      <Heading title={plainText(app.name)} />
      <p class="lead">
        <span role="status">
          <State state={shownState(app)} />
        </span>{" "}
        <Text of={app.summary} />
      </p>
      {app.stateReason !== "" && (
        <p class="notice">
          <Text of={reasonOf(app)} />
        </p>
      )}
      {app.operation !== undefined && !isListed && (
        <div class="notice row">
          <span role="status">
            <Text of={texts.app.underWay(app.operation.kind, app.operation.phase)} />
          </span>
          <progress aria-label={texts.app.operation} />
          {app.operation.cancelable && <CancelOperation api={api} app={app} />}
        </div>
      )}
      <Actions api={api} app={app} terminal={terminal} />
      <RunningOperations node={node} appId={id} />
      <div class="columns">
        <div>
          <About api={api} node={node} app={app} />
          {app.lastLines.length > 0 && (
            <section class="card" aria-labelledby="last-lines">
              <h2 id="last-lines">{texts.app.lastLines}</h2>
              <pre>{app.lastLines.map(plainLine).join("\n")}</pre>
            </section>
          )}
          <AppDiskView key={`disk ${id}`} api={api} node={node} app={app} />
        </div>
        <div>
          {app.placement !== undefined && <TasksView api={api} app={app} />}
          {terminal.value !== undefined && (
            <TerminalView
              key={terminal.value}
              api={api}
              app={app}
              session={terminal.value}
              onClose={() => (terminal.value = undefined)}
            />
          )}
          <LogView api={api} node={node} appId={id} />
          <AppHistory api={api} id={id} />
          <SettingsView api={api} app={app} />
          <ManageView api={api} node={node} app={app} />
        </div>
      </div>
    </>
  );
}

type Session = "shell" | "attach";
type Verb = "start" | "stop" | "restart";

/** The actions allowed in each state; the daemon rejects all others. */
const verbsOf: Readonly<Record<string, readonly Verb[]>> = {
  STOPPED: ["start"],
  FAILED: ["start"],
  CRASHED: ["start"],
  STARTING: ["stop"],
  RUNNING: ["stop", "restart"],
  UNKNOWN: ["start", "stop"],
};

interface ActionsProps {
  readonly api: Api;
  readonly app: App;
  /** The open terminal, if any. */
  readonly terminal: Signal<Session | undefined>;
}

function Actions({ api, app: { id, state, hasConsole }, terminal }: ActionsProps) {
  const { busy, failure, perform } = useAction();
  const calls: Readonly<Record<Verb, () => Promise<unknown>>> = {
    start: () => api.apps.startApp({ id }),
    stop: () => api.apps.stopApp({ id }),
    restart: () => api.apps.restartApp({ id }),
  };
  const verbs = verbsOf[state] ?? [];
  return (
    <>
      <div class="row actions">
        {(["start", "stop", "restart"] as const).map((verb) => (
          <button
            key={verb}
            type="button"
            class={verb === "start" ? "primary" : ""}
            aria-busy={busy === verb}
            aria-disabled={!verbs.includes(verb)}
            onClick={() => void (verbs.includes(verb) && perform(verb, calls[verb]))}
          >
            {texts.app[verb]}
          </button>
        ))}
        <span class="links">
          {(hasConsole ? (["shell", "attach"] as const) : (["shell"] as const)).map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={terminal.value === each}
              onClick={() => (terminal.value = each)}
            >
              {texts.terminal.open(each)}
            </button>
          ))}
        </span>
      </div>
      <Failure message={failure} />
    </>
  );
}

function About({ api, node, app }: { api: Api; node: NodeView; app: App }) {
  const { id, state, exitCode, exitSignal, startedAt, health, healthReason = "" } = app;
  // Includes ports that only running containers publish.
  const listed = useLive(node, [], (signal) => api.apps.listAppPorts({ id }, { signal }), [api, id, state]);
  const { ports } = listed.value ?? app;
  const adopted = adoptedItems(app);
  return (
    <Facts
      title={texts.app.facts}
      facts={[
        [texts.app.version, <Text key="version" of={versionOf(app)} />],
        [texts.app.runtime, texts.runtimes[app.runtime] ?? app.runtime],
        [texts.app.owner, <Text key="owner" of={app.ownerName || String(app.owner)} />],
        [texts.app.since, startedAt && <When key="since" at={startedAt} />],
        [
          texts.app.health,
          health !== "none" && <Text key="health" of={`${health} ${healthReason}`.trim()} />,
        ],
        [texts.app.exit, exitSignal ?? (exitCode === undefined ? "" : texts.app.exitCode(exitCode))],
        [texts.app.restarts, app.restarts === 0 ? "" : app.restarts],
        [texts.app.ports, ports.length > 0 && <Ports key="ports" ports={ports} state={state} />],
        [texts.app.directory, <Directory key="directory" of={app.directory} />],
        [texts.app.adopted, adopted.length > 0 && <Text key="adopted" of={adopted.join(", ")} />],
        [texts.app.homepage, app.homepage !== "" && <ExternalLink key="homepage" to={app.homepage} />],
        [
          texts.app.backups,
          <a key="backups" href={pathTo("backups", app.id)}>
            {texts.app.itsBackups}
          </a>,
        ],
      ]}
    />
  );
}

function versionOf({ version, availableVersion }: App): string {
  return availableVersion === undefined ? version : `${version} (${texts.app.newer(availableVersion)})`;
}

/** The app's directory on this host. */
function Directory({ of }: { of: string }) {
  return (
    <a href={pathTo("files", ...partsOf(of))}>
      <Text of={of} />
    </a>
  );
}

/**
 * The host of this page, but not by the page's own name. Browsers share cookies between the ports of a name, and an app could replace
 * the page's cookie by many of its own.
 */
function hostOfApps(): string {
  return location.hostname.endsWith(".localhost") ? "127.0.0.1" : location.hostname;
}

/** Links to the app's ports while it runs. */
function Ports({ ports, state }: Pick<App, "ports" | "state">) {
  return (
    <ul class="inline">
      {ports.map(({ port, name, protocol }) => {
        const text = texts.app.portName(port, plainText(name));
        const isLink = protocol === "tcp" && state === "RUNNING";
        return (
          <li key={`${String(port)}/${protocol}`}>
            {isLink ? (
              <a
                href={`${schemeOf({ name })}://${hostOfApps()}:${String(port)}/`}
                target="_blank"
                rel="noreferrer noopener"
              >
                {text}
              </a>
            ) : (
              text
            )}
          </li>
        );
      })}
    </ul>
  );
}
