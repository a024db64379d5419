// Saves a figure as it stands on a white page, so that it can be pasted where the page can't.
const light={ink:'#1b1f24',muted:'#667080',grid:'#e4e7eb',paper:'#ffffff'};
function plain(button){const svg=button.closest('figure').querySelector('svg');
return[svg.viewBox.baseVal,new XMLSerializer().serializeToString(svg).replace(/var\(--c-([0-9a-f]{6})[^)]*\)/g,'#$1')
.replace(/var\(--(\w+)\)/g,(m,n)=>light[n]||m).replace('<svg ','<svg font-family="DejaVu Sans,Verdana,sans-serif" ')]}
function keep(name,href){const a=document.createElement('a');a.download=name;a.href=href;a.click()}
function svg(button){const[,text]=plain(button);keep(button.dataset.name+'.svg','data:image/svg+xml;charset=utf-8,'+encodeURIComponent(text))}
function png(button){const[box,text]=plain(button),k=2.5;
const image=new Image();image.onload=()=>{const c=document.createElement('canvas');c.width=box.width*k;c.height=box.height*k;
const g=c.getContext('2d');g.fillStyle='#fff';g.fillRect(0,0,c.width,c.height);g.drawImage(image,0,0,c.width,c.height);
keep(button.dataset.name+'.png',c.toDataURL('image/png'))};
image.src='data:image/svg+xml;charset=utf-8,'+encodeURIComponent(text)}
