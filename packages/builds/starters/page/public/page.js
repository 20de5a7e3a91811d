const get = async (path) => (await fetch(path)).json();
const list = document.querySelector('#guests');

async function show() {
  const guests = await get('/api/guests');
  list.replaceChildren(
    ...guests.map(({ name, at }) => {
      const item = document.createElement('li');
      item.textContent = `${name}, ${new Date(at).toLocaleTimeString()}`;
      return item;
    }),
  );
}

document.querySelector('#sign').addEventListener('submit', async (event) => {
  event.preventDefault();
  const name = document.querySelector('#name');
  await fetch('/api/guests', { method: 'POST', body: JSON.stringify({ name: name.value }) });
  name.value = '';
  await show();
});

const { goals, startedAt } = await get('/api/about');
document.title = goals.at(-1);
document.querySelector('#goal').textContent = goals.at(-1);
document.querySelector('#started').textContent = new Date(startedAt).toLocaleString();
await show();
