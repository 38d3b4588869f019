import { useSignal } from "@preact/signals";
import type { App } from "../../../gen/svc/v1/app_pb.ts";
import { missingTasks } from "../../lib/task-count.ts";
import { shownState } from "../app-state.ts";
import type { NodeView } from "../node-view.ts";
import { Heading } from "../parts/heading.tsx";
import { State } from "../parts/state.tsx";
import { Text } from "../parts/text.tsx";
import { plainText } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";

const { columns } = texts.apps;

export function AppsView({ node }: { node: NodeView }) {
  const filter = useSignal("");
  const apps = node.apps.value;
  if (apps === undefined) return <Heading title={texts.apps.title}>{` – ${texts.loading}`}</Heading>;
  const word = filter.value.trim().toLowerCase();
  const shown = [...apps.values()]
    .filter(({ id, name, ownerName }) =>
      [id, name, ownerName].some((text) => text.toLowerCase().includes(word)),
    )
    .toSorted((one, other) => one.name.localeCompare(other.name) || one.id.localeCompare(other.id));
  return (
    <>
      <div class="titled">
        <Heading title={texts.apps.title} />
        <a class="primary" href={pathTo("install")}>
          {texts.install.title}
        </a>
      </div>
      {apps.size === 0 ? (
        <p>{texts.apps.none}</p>
      ) : (
        <>
          <div class="row">
            <input
              class="filter"
              type="search"
              aria-label={texts.apps.filter}
              placeholder={texts.apps.filter}
              value={filter.value}
              onInput={({ currentTarget }) => (filter.value = currentTarget.value)}
            />
            <span class="quiet" role="status">
              {shown.length === 0 ? texts.apps.noneFound : texts.apps.counted(shown.length)}
            </span>
          </div>
          <div class="list-head" aria-hidden="true">
            <span>{columns.name}</span>
            <span>{columns.state}</span>
            <span>{columns.version}</span>
            <span>{columns.owner}</span>
          </div>
          <ul class="list">
            {shown.map((app) => (
              <Row key={app.id} app={app} />
            ))}
          </ul>
        </>
      )}
    </>
  );
}

function Row({ app }: { app: App }) {
  const missing = missingTasks(app);
  return (
    <li>
      <a href={pathTo("apps", app.id)}>
        <span class="name">
          <Text of={app.name} /> <bdi class="quiet">{plainText(app.id)}</bdi>
        </span>
        <span>
          <State state={shownState(app)} />{" "}
          {missing !== undefined && <span class="quiet">{texts.apps.someTasks(missing)}</span>}
        </span>
        <Text of={app.version} />
        <Text of={app.ownerName || String(app.owner)} />
        {app.summary !== "" && <bdi class="summary">{plainText(app.summary)}</bdi>}
      </a>
    </li>
  );
}
