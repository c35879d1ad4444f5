// Prints the tests that the suite's client runs, as JSON: [{ id, name, tests: [{ id, name, kind, depends_on }] }].
// Takes the directory that the suite lies in.
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const load = async name => (await import(pathToFileURL(path.join(process.argv[2], 'tests', name)))).default

// In the client's order, which adds the last group by hand.
const groups = [...await load('index.mjs'), await load('surrogate-control.mjs')]
console.log(JSON.stringify(groups.map(group => ({
  id: group.id,
  name: group.name,
  tests: group.tests
    .filter(test => test.browser_only !== true)
    .map(({ id, name, kind = 'required', depends_on = [] }) => ({ id, name, kind, depends_on }))
}))))
