import './styles/fonts.css';
import './styles/tokens.css';
import './styles/base.css';
import { mount } from 'svelte';
import App from './App.svelte';
import { watchFiles } from './lib/renewal';
import { start } from './lib/router.svelte';
import { wear } from './lib/theme.svelte';
import { watchKeyboard } from './lib/viewport';

wear();
watchFiles();
watchKeyboard();
start();
const target = document.getElementById('app');
if (target) mount(App, { target });
